// Where the modules under test are, and numbers as the bytes of a message.

export const SOURCES = new URL("../../../tsnb/panel/frontend/src", import.meta.url).href;

export const bytes = (numbers) => new DataView(Float32Array.from(numbers).buffer);
