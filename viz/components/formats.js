// Numbers as text, the same as in decoding/common/formats.py (a test compares them).

// A count of things: 12,345.
export const count = (value) => value.toLocaleString("en");

// A probability: 0.62, <0.01 for what would read 0.00; for none, the bound it is below, or a dash.
export function probability(value, floor = 0) {
  if (value !== null && value !== undefined) return number(value, 2);
  return floor > 0 ? `<${(Math.ceil(100 * floor) / 100).toFixed(2)}` : "–";
}

export function number(value, digits) {
  const least = 10 ** -digits;
  return value > 0 && value < least / 2 ? `<${least.toFixed(digits)}` : value.toFixed(digits);
}

// A time: 1.20 s, 2.9 ms, 310 µs.
export function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(1)} ms` : `${Math.round(seconds * 1e6)} µs`;
}

// A difference with its sign.
export function signed(difference, decimals) {
  return difference === 0 ? "0" : (difference > 0 ? "+" : "−") + number(Math.abs(difference), decimals);
}
