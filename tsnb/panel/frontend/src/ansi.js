// Coloured text (ANSI escape sequences) in parts: [{text, colour, bold}]. Pure.

// as terminals have them, in tones that can be read on white and, mixed with the text's colour, on black
const NAMED = ["#3e424d", "#c4342d", "#1a7f37", "#9a6700", "#2a62c4", "#9a3fa8", "#0f7f8c", "#8a8f98"];
const SEQUENCE = /\x1b\[([\d;?]*)([A-Za-z])/g;

export function coloured(text) {
  if (!text.includes("\x1b")) return text ? [{ text }] : [];
  const parts = [];
  let style = {}, from = 0;
  const put = (to) => to > from && parts.push({ text: text.slice(from, to), ...style });
  for (const found of text.matchAll(SEQUENCE)) {
    put(found.index);
    from = found.index + found[0].length;
    if (found[2] === "m") style = styled(style, found[1]);
  }
  put(text.length);
  return parts;
}

function styled(before, numbers) {
  const style = { ...before }, codes = (numbers || "0").split(";").map(Number);
  for (let k = 0; k < codes.length; k++) {
    const code = codes[k];
    if (code === 0) Object.keys(style).forEach((key) => delete style[key]);
    else if (code === 1) style.bold = true;
    else if (code === 22) delete style.bold;
    else if (code === 39) delete style.colour;
    else if (code >= 30 && code < 38) style.colour = NAMED[code - 30];
    else if (code >= 90 && code < 98) style.colour = NAMED[code - 90];
    else if (code === 38 || code === 48) {
      const colour = codes[k + 1] === 5 ? indexed(codes[k + 2]) : rgb(codes.slice(k + 2, k + 5));
      if (code === 38) style.colour = colour;
      k += codes[k + 1] === 5 ? 2 : 4;
    }
  }
  return style;
}

const rgb = (parts) => `rgb(${parts.map((part) => part || 0).join(",")})`;

/** A colour of the 256: the 16 named, a cube of 216, 24 greys. */
function indexed(n) {
  if (n < 16) return NAMED[n % 8];
  if (n >= 232) return rgb(Array(3).fill(8 + (n - 232) * 10));
  const level = (k) => (k ? 55 + k * 40 : 0);
  return rgb([level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6)]);
}
