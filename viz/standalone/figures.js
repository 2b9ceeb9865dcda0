// Draws the figures of the page and saves them: Plotly makes SVG and PNG in the browser.

{
  const figures = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const draw = () => {
    const paper = getComputedStyle(document.body).backgroundColor;
    figures.forEach(({ themes }, place) => {
      const { data, layout } = themes[dark.matches ? 1 : 0];
      const onPaper = { ...layout, paper_bgcolor: paper, plot_bgcolor: paper };
      const config = { displayModeBar: false, responsive: true };
      window.Plotly.react(document.getElementById("figure-" + place), data, onPaper, config);
    });
  };

  const save = (place, format) => {
    const figure = document.getElementById("figure-" + place);
    const filename = figures[place].name
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .slice(0, 60);
    const { offsetWidth: width, offsetHeight: height } = figure;
    window.Plotly.downloadImage(figure, { format, filename, width, height, scale: 2 });
  };

  for (const button of document.querySelectorAll("button[data-figure]")) {
    button.addEventListener("click", () => save(Number(button.dataset.figure), button.dataset.format));
  }
  dark.addEventListener("change", draw);
  draw();
}
