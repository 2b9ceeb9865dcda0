"""The losses of draft heads against values computed by hand on a toy head, and where their gradients flow."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.training.head_losses import (
    Drafted,
    Sides,
    TextWindows,
    Weights,
    cross_entropies,
    eagle_loss,
    following_text,
    hass_loss,
    labels_of,
    talf_loss,
    unroll,
)

BATCH, ROOTS, DEPTH, SIZE, VOCAB, TOP_K = 2, 6, 3, 8, 11, 2


class ToyHead(torch.nn.Module):
    """Feature out = weight * (embedding + feature in) + 0.1 * mean over what the row sees: small enough for a hand."""

    def __init__(self, weight: float = 0.5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def forward(self, embedded, features, positions, mask, past=None):
        own = (embedded + features)[:, None]  # one attention head
        rows = own if past is None else torch.cat([past[0], own], 2)
        seen = mask.float()[:, None].expand(len(own), -1, -1, -1)
        mean = (seen @ rows) / seen.sum(-1, keepdim=True)
        return (self.weight * own + 0.1 * mean)[:, 0], own, own


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


@pytest.fixture
def ends(generator):
    embedding = torch.randn(VOCAB, SIZE, generator=generator, requires_grad=True)
    output = torch.randn(VOCAB, SIZE, generator=generator, requires_grad=True)
    return embedding, output


@pytest.fixture
def sides(ends):
    return Sides(lambda ids: ends[0][ids], lambda features: features @ ends[1].T)


@pytest.fixture
def text(generator):
    tokens = torch.randint(VOCAB, (BATCH, ROOTS + DEPTH), generator=generator)
    return TextWindows(tokens, torch.randn(BATCH, ROOTS + DEPTH, SIZE, generator=generator, requires_grad=True), DEPTH)


@pytest.fixture
def trees(generator):
    shape = (BATCH, DEPTH - 1, ROOTS, TOP_K)
    parents = torch.randint(TOP_K, shape, generator=generator)
    parents[:, 0] = 0
    labels = torch.randn(*shape, SIZE, generator=generator, requires_grad=True)
    return Drafted(torch.randint(VOCAB, shape, generator=generator), parents, labels)


def toy_path(head: ToyHead, sides: Sides, text: TextWindows, batch: int, root: int, drafted: list[int]) -> list[Tensor]:
    """Features out at a root and along a chain of drafted tokens, row after row as one would by hand."""
    tokens, features = text.tokens[batch], text.features[batch]
    rows = [sides.embed(tokens[t]) + features[t - 1] for t in range(1, root + 2)]
    found = []
    for token in [None, *drafted]:
        if token is not None:
            rows.append(sides.embed(torch.tensor(token)) + found[-1])
        found.append(head.weight * rows[-1] + 0.1 * torch.stack(rows).mean(0))
    return found


def entropy_by_hand(sides: Sides, out: Tensor, label: Tensor, top: int | None = None) -> Tensor:
    """-sum p log q over the vocabulary, or over the target's likeliest tokens alone."""
    probs, draft = torch.softmax(sides.project(label), -1), torch.softmax(sides.project(out), -1)
    tokens = probs.argsort(descending=True)[:top]
    return -sum(probs[token] * torch.log(draft[token]) for token in tokens)


def mean_over_roots(value: Callable[[int, int], Tensor]) -> float:
    with torch.no_grad():
        return float(sum(value(batch, root) for batch in range(BATCH) for root in range(ROOTS)) / (BATCH * ROOTS))


def test_eagle_is_regression_and_classification_at_every_root(sides, text):
    head = ToyHead()
    weights = Weights(regression=2.0, classification=3.0)

    def by_hand(batch, root):
        (out,) = toy_path(head, sides, text, batch, root, [])
        label = text.features[batch, root + 1]
        return 2.0 * (out - label).abs().mean() + 3.0 * entropy_by_hand(sides, out, label)

    assert eagle_loss(head, sides, text, weights)["loss"].item() == pytest.approx(mean_over_roots(by_hand), rel=1e-5)


def test_hass_feeds_features_back_along_the_text(sides, text):
    head, top = ToyHead(), 4
    weights = Weights(regression=0.5, classification=2.0, distillation=3.0, top=top)

    def by_hand(batch, root):
        drafted = text.tokens[batch, root + 2 : root + 1 + DEPTH].tolist()
        total = 0
        for depth, out in enumerate(toy_path(head, sides, text, batch, root, drafted)):
            label = text.features[batch, root + 1 + depth]
            total = total + 0.5 * (out - label).abs().mean() + 2.0 * entropy_by_hand(sides, out, label)
            total = total + 3.0 * entropy_by_hand(sides, out, label, top)
        return total

    parts = hass_loss(head, sides, text, weights)
    assert parts["loss"].item() == pytest.approx(mean_over_roots(by_hand), rel=1e-5)
    assert set(parts) == {"loss", "regression", "classification", "distillation"}


def test_talf_is_the_cross_entropy_at_every_node_of_the_tree(sides, text, trees):
    head = ToyHead()

    def by_hand(batch, root):
        total = entropy_by_hand(sides, toy_path(head, sides, text, batch, root, [])[0], text.features[batch, root + 1])
        for level in range(DEPTH - 1):
            for node in range(TOP_K):
                chain, place = [], node
                for above in range(level, -1, -1):
                    chain.append(int(trees.tokens[batch, above, root, place]))
                    place = int(trees.parents[batch, above, root, place])
                out = toy_path(head, sides, text, batch, root, chain[::-1])[-1]
                total = total + entropy_by_hand(sides, out, trees.labels[batch, level, root, node])
        return total

    assert talf_loss(head, sides, text, trees)["loss"].item() == pytest.approx(mean_over_roots(by_hand), rel=1e-5)


def test_talf_with_one_node_is_eagles_classification(sides, text):
    head = ToyHead()
    eagle = eagle_loss(head, sides, text, Weights(regression=0.0, classification=1.0))
    assert talf_loss(head, sides, text, None)["loss"].item() == eagle["loss"].item() == float(eagle["classification"])


def test_talf_of_width_1_on_the_text_is_hass_without_regression(sides, text):
    """What the paper says of Table 3: with one node per level only the choice of the tokens is another."""
    head = ToyHead()
    hass = hass_loss(head, sides, text, Weights(regression=0.0, classification=1.0, distillation=0.0))
    assert talf_loss(head, sides, text, following_text(text))["loss"].item() == pytest.approx(hass["loss"].item())


@pytest.mark.parametrize("name", ["eagle", "hass", "talf"])
def test_gradients_flow_into_the_head_alone(name, sides, ends, text, trees):
    head = ToyHead()
    losses = {
        "eagle": lambda: eagle_loss(head, sides, text, Weights()),
        "hass": lambda: hass_loss(head, sides, text, Weights()),
        "talf": lambda: talf_loss(head, sides, text, trees),
    }
    losses[name]()["loss"].backward()
    assert head.weight.grad is not None and abs(float(head.weight.grad)) > 0
    assert ends[0].grad is None and ends[1].grad is None, "embedding and output head are the target's"
    assert trees.labels.grad is None, "soft labels are no weights"


def test_soft_labels_get_no_gradient(sides, ends, generator):
    out, labels = (torch.randn(2, 3, 1, SIZE, generator=generator, requires_grad=True) for _ in range(2))
    sum(cross_entropies(sides.project, out, labels, 3)).backward()
    assert labels.grad is None and ends[1].grad is None and out.grad.abs().sum() > 0


@pytest.mark.parametrize("rows_at_once", [1, 2, 100])
def test_gradients_are_those_of_autograd_whatever_the_blocks(monkeypatch, ends, generator, rows_at_once):
    monkeypatch.setattr("decoding.training.head_losses.LOGITS_AT_ONCE", rows_at_once * VOCAB)
    output = ends[1].detach()
    out, labels = (torch.randn(2, 3, 2, SIZE, generator=generator) for _ in range(2))
    fast, slow = out.clone().requires_grad_(), out.clone().requires_grad_()
    whole, likeliest = cross_entropies(lambda features: features @ output.T, fast, labels, 3)
    (2 * whole + 5 * likeliest).backward()
    probs = torch.softmax(labels @ output.T, -1)
    chosen = torch.zeros_like(probs).scatter_(-1, probs.topk(3).indices, 1.0)
    surprise = -torch.log_softmax(slow @ output.T, -1)
    expected = ((2 + 5 * chosen) * probs * surprise).sum(-1).sum(-1).mean()
    expected.backward()
    assert float((2 * whole + 5 * likeliest).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    torch.testing.assert_close(fast.grad, slow.grad)


def test_features_that_are_fed_back_carry_gradients(sides, text):
    """The first forward learns what later ones need: its output is their input."""
    found = unroll(ToyHead(), sides.embed, text, following_text(text))
    for earlier, later in ((0, 1), (0, 2), (1, 2)):
        (slope,) = torch.autograd.grad(found[later].sum(), found[earlier], retain_graph=True)
        assert float(slope.abs().sum()) > 0


@pytest.mark.parametrize("together", [1, 2, 3, 32])
def test_groups_of_roots_change_nothing(monkeypatch, sides, text, trees, together):
    monkeypatch.setattr("decoding.training.head_losses.ROOTS_TOGETHER", together)
    head = real_head()
    found = unroll(head, sides.embed, text, trees)
    monkeypatch.setattr("decoding.training.head_losses.ROOTS_TOGETHER", ROOTS)
    for one, other in zip(found, unroll(head, sides.embed, text, trees), strict=True):
        torch.testing.assert_close(one, other)


def real_head() -> HeadNetwork:
    return HeadNetwork(HeadConfig(SIZE, VOCAB, 2, 12), torch.Generator().manual_seed(0))


@torch.no_grad()
def test_the_real_head_unrolled_is_the_head_run_token_by_token(sides, text, trees):
    """One row after another with a cache, as in decoding, gives what all roots at once give."""
    head = real_head()
    found = unroll(head, sides.embed, text, trees)
    for root in (0, ROOTS - 1):
        level, node = DEPTH - 2, 1
        parent = int(trees.parents[1, level, root, node])
        chain = [int(trees.tokens[1, 0, root, parent]), int(trees.tokens[1, 1, root, node])]
        tokens = [*text.tokens[1, 1 : root + 2].tolist(), *chain]
        past, out, outs = None, None, []
        for row, token in enumerate(tokens):
            feature = text.features[1, row] if row <= root else out
            mask = torch.ones(1, 1, row + 1, dtype=torch.bool)
            embedded = sides.embed(torch.tensor([[token]]))
            out, keys, values = head(embedded, feature.view(1, 1, -1), torch.tensor([[row + 1]]), mask, past)
            past = (keys, values) if past is None else (torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2))
            out = out[0, 0]
            outs.append(out)
        torch.testing.assert_close(found[0][1, root, 0], outs[root], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[1][1, root, parent], outs[root + 1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[2][1, root, node], outs[root + 2], atol=1e-5, rtol=1e-5)


def test_labels_of_the_text_are_those_of_the_tokens_behind_it(text):
    chain = following_text(text)
    assert chain.tokens.shape == (BATCH, DEPTH - 1, ROOTS, 1)
    assert torch.equal(chain.tokens[0, 0, :, 0], text.tokens[0, 2 : 2 + ROOTS])
    assert torch.equal(chain.labels[0, 1, :, 0], text.features[0, 3 : 3 + ROOTS])
    assert torch.equal(labels_of(text, None)[0][1, :, 0], text.features[1, 1 : 1 + ROOTS])
