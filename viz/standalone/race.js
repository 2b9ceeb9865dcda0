// A standalone page with a race.

import race from "../race/race.js";

{
  const data = JSON.parse(document.getElementById("data").textContent);
  race({ data, parentElement: document.getElementById("race") });
}
