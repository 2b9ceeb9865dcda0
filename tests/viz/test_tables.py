"""Tables as HTML: heads for readers, classes by column and row, and nothing that text could turn into markup."""

from viz.tables import Cell, Markup, html_table

EVIL = '<img src="x">'


def test_a_column_has_the_class_of_its_head_and_a_row_its_own():
    heads = ("method", Cell("tokens/s", "number", "new tokens / time"))
    written = html_table(heads, [("Linear", "61"), ("DynaTree", Cell("75", "best"))], row_kinds=("", "first"))
    assert written == (
        '<table class="ds-table"><thead><tr><th scope="col">method</th>'
        '<th scope="col" class="number" title="new tokens / time">tokens/s</th></tr></thead><tbody>'
        '<tr><th scope="row">Linear</th><td class="number">61</td></tr>'
        '<tr class="first"><th scope="row">DynaTree</th><td class="best">75</td></tr></tbody></table>'
    )


def test_only_markup_is_not_escaped():
    rows = [(EVIL, Cell(EVIL, about=EVIL)), (Markup("<b>bold</b>"), "plain")]
    written = html_table((EVIL, "value"), rows, caption=EVIL, label=EVIL)
    assert "<img" not in written and written.count("&lt;img") == 6 and "<b>bold</b>" in written
    assert written.startswith('<div class="ds-table-box" tabindex="0" role="region" aria-label="&lt;img')


def test_a_cell_may_span_columns_and_a_table_lack_heads():
    written = html_table((), [("statistic", Cell("block efficiency", span=2))], "protocol")
    assert written == (
        '<table class="ds-table protocol"><tbody><tr><th scope="row">statistic</th>'
        '<td colspan="2">block efficiency</td></tr></tbody></table>'
    )
