// The corpus: strings in 18 categories, made from seeds by a fixed random
// sequence, so that every run gives the same ones.

let state = 0x9e3779b9;
export function random() { // mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
export const below = (n) => Math.floor(random() * n);
export const pick = (list) => list[below(list.length)];
export const times = (n, f) => Array.from({ length: n }, (_, i) => f(i));
const join = (n, list, sep = "") => times(n, () => pick(list)).join(sep);
const cp = (a, b) => String.fromCodePoint(a + below(b - a + 1));

const english = [
  "The quick brown fox jumps over the lazy dog.", "It was the best of times, it was the worst of times.",
  "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
  "How many clips did Natalia sell altogether in April and May?", "A robe takes 2 bolts of blue fiber and half that much white fiber.",
  "Let me think about this step by step.", "Please explain the difference between TCP and UDP.",
  "I'm sorry, but I can't help with that.", "She'd have gone if they'd asked; we'll see what he's done.",
  "NASA's Apollo-11 mission landed on July 20th, 1969 at 20:17 UTC.", "E = mc^2, where c is about 3.0e8 m/s.",
  "Antidisestablishmentarianism is a long word", "state-of-the-art, end-to-end, e-mail, co-operate",
  "\"Quoted,\" he said; 'single too'.", "Mr. O'Neill's café costs €3.50 (£3.00).", "WHY ARE YOU SHOUTING AT ME?",
  "camelCase PascalCase snake_case kebab-case SCREAMING_SNAKE", "The naïve résumé of Zoë's fiancé",
  "Answer: #### 72", "So the total is 48 + 24 = <<48+24=72>>72.", "ok", "a", "I", "Supercalifragilisticexpialidocious!",
];
const words = english.join(" ").split(/\s+/).concat(["the", "of", "token", "model", "window", "probability", "tokenizer", "untranslatable", "xylophone", "zzz"]);
const scripts = [
  "你好，世界！今天天气怎么样？", "请一步一步地思考这个问题。", "人工智能正在改变世界，２０２４年。", "東京は日本の首都です。カタカナ、ひらがな、漢字。",
  "ｱｲｳｴｵ が ぎ ぐ パピプ", "안녕하세요, 세계! 오늘 날씨가 어떻습니까?", "Привет, мир! Как дела? Ещё раз.", "Γειά σου Κόσμε, τι κάνεις;",
  "مرحبا بالعالم، كيف حالك؟ ١٢٣", "שלום עולם! מה שלומך?", "नमस्ते दुनिया, आप कैसे हैं? १२३", "สวัสดีชาวโลก ๑๒๓", "Xin chào thế giới, bạn khỏe không?",
  "Zażółć gęślą jaźń", "Ťažký kôň úpěl ďábelské ódy", "İstanbul'da ığdır ŞİŞLİ", "Þórður ætlar að éta", "ქართული ენა", "Հայերեն լեզու",
  "বাংলা ভাষা", "தமிழ் மொழி", "తెలుగు భాష", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "ភាសាខ្មែរ", "ລາວ", "မြန်မာ", "བོད་ཡིག", "አማርኛ", "ᏣᎳᎩ", "ᐃᓄᒃᑎᑐᑦ", "ᚠᛇᚻ",
  "ߒߞߏ", "Straße ﬁne ﬂow ŉ ǆ", "Ⅳ Ⅻ ½ ¾ ² ³ ①②③ ㊀ ㋿", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚", "𐍈𐌰𐌹", "𓀀𓂀", "𠀀𠮷野家", "ℵ₀ ∑ ∫ √ ≤ ≥ ≠",
];
const code = [
  "func main() {\n\tfmt.Println(\"hello\")\n}\n", "def f(x):\n    return [i**2 for i in range(x) if i % 2 == 0]\n", "for (int i = 0; i < n; ++i) {\n  sum += a[i];\n}\n",
  "<div class=\"a\">\n  <p>Hi &amp; bye</p>\n</div>\n", "SELECT * FROM t WHERE a = 'b' AND c != 3;", "{\"key\": [1, 2.5, null, true], \"n\": {\"x\": \"\\u00e9\"}}",
  "const f = async (x) => await g(x ?? 0);", "#include <stdio.h>\n\nint main(void)\n{\n\treturn 0;\n}\n", "\t\t\tif err != nil {\r\n\t\t\t\treturn err\r\n\t\t\t}\r\n",
  "let s = &mut vec![0u8; 1024];", "$ git commit -m \"wip\" && git push --force\n", "```python\nprint('hi')\n```\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",
  "\\begin{align}\n  x &= \\frac{a}{b} \\\\\n\\end{align}", "x_{i+1} = x_i - \\eta \\nabla f(x_i)", "https://example.com/a/b?c=d&e=%20f#g", "user.name+tag@example.co.uk",
  "/* comment */ // another\n", "    \n        pass\n\n\n", "a=b;c=d;;e", "!!!???...", "->=>::<<>>||&&", "C:\\Windows\\System32\\", "0x1F 0b101 1e-5 1_000_000", "@decorator\n@other(a=1)\n",
];
const special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|repo_name|>",
  "<tool_response>", "</tool_response>", "<think>", "</think>", "<|mask|>"];
const nearSpecial = ["<|im_start|", "<|", "|>", "<", "<<|im_end|>", "<|im_end|>>", "<|IM_END|>", "<think", "think>", "< think>", "<|mask|", "<|im_<|im_start|>", "<tool_call", "</", "<|endoftext|>|>"];
const spaces = [" ", " ", " ", "  ", "\t", "\n", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\u200b", "\ufeff", "\u000b", "\u000c", "\u180e", "\u202f", "\u1680"];
const contractions = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'lL", "'D", "'\u017f", "\u2019s", "''", "'", "'x", "'l", "'r", "'v", "'\u212a"];
const emoji = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "🏳️‍🌈", "❤️", "☺", "✌🏿", "🤷‍♀️", "1️⃣", "©️", "🧑🏻‍🚀", "🫠", "🥲", "🪿", "⌚", "🀄", "🃏", "\u{1fae8}"];
const marks = [0x300, 0x301, 0x302, 0x303, 0x304, 0x307, 0x308, 0x30a, 0x31b, 0x323, 0x327, 0x328, 0x334, 0x338, 0x344, 0x345, 0x34f, 0x5b0, 0x5bc, 0x64b, 0x651, 0x93c, 0x94d,
  0x9be, 0x9d7, 0xbbe, 0xbd7, 0xdcf, 0xdd9, 0xe48, 0xf71, 0xf72, 0xf74, 0xf80, 0x1037, 0x102e, 0x17d2, 0x1ab0, 0x1abf, 0x1ac1, 0x1dc4, 0x1df6, 0x20d0, 0x302a, 0x3099, 0x309a, 0xa82c,
  0xfe20, 0x8ca, 0x898, 0x7fd, 0x110ba, 0x11127, 0x1133e, 0x11357, 0x1145e, 0x114ba, 0x115af, 0x11930, 0x1193d, 0x1d165, 0x1d16d, 0x1d16e, 0x1e130, 0x1e2ae];
const bases = [..."aeiouAEIOUczsnwyЙигեאب가ក한"].concat(["\u1e0b", "\u01b0", "\u0b47", "\u1025", "\u304b", "\u30ab", "\u11935", "\u{11935}", "\u{11938}", "\u{1d157}", "\u{13072}", "\u{11099}", "\u212b", "\u0958", "\u2adc", "\ufb1d", "\uf900", "\u0f43", "\u0390", "q"]);
const mark = () => String.fromCodePoint(pick(marks));
const jamo = () => pick([() => cp(0x1100, 0x1112), () => cp(0x1161, 0x1175), () => cp(0x11a7, 0x11c3), () => cp(0xac00, 0xd7a3), () => cp(0x1113, 0x115f), () => cp(0x1176, 0x11a7), () => cp(0x3131, 0x318e), () => " "])();
const control = ["\u0000", "\u0001", "\u007f", "\u0080", "\u009f", "\ufffd", "\ufffe", "\uffff", "\u{10ffff}", "\u{1fffe}", "\ue000", "\u{f0000}", "\u200d", "\u200e", "\u202e", "\u2066", "\u00ad", "\u{e0041}", "\u{e0100}"];
const numbers = () => pick([() => String(below(10)), () => String(below(1e9)), () => (random() * 1000).toFixed(below(6)), () => below(1000) + "," + String(1000 + below(1000)).slice(1), () => "$" + below(100) + ".00",
  () => below(100) + "%", () => "-" + below(50), () => below(20) + "/" + (1 + below(20)), () => cp(0x660, 0x669) + cp(0x966, 0x96f) + cp(0xff10, 0xff19), () => cp(0x2160, 0x217f), () => "#" + below(99), () => below(24) + ":" + below(60)])();
const names = ["Tom", "Maria", "Chen", "Aisha", "Lukas", "Priya"], things = ["apples", "marbles", "books", "stickers", "pencils", "coins"];
const problem = () => `${pick(names)} has ${below(90)} ${pick(things)}. ${pick(names)} gives ${pick(names)} ${below(40)} more and takes ${below(9)} away. How many ${pick(things)} are left?`;
const sentence = () => join(3 + below(12), words, " ") + pick([".", "!", "?", "...", ""]);

export function corpus() {
  const categories = {
    english: () => [...english, ...times(150, sentence), ...times(40, () => times(2 + below(4), sentence).join(pick([" ", "\n", "\n\n"])))],
    problems: () => times(150, () => problem() + pick(["", "\n", " "]) + pick(["", `So ${below(50)} + ${below(50)} = ${below(100)}.\n#### ${below(100)}`])),
    scripts: () => [...scripts, ...times(260, () => join(1 + below(4), scripts, pick(["", " ", "\n"]))), ...times(60, () => [...pick(scripts)].sort(() => random() - 0.5).join(""))],
    code: () => [...code, ...times(240, () => join(1 + below(5), code, pick(["", "\n", "  "])))],
    chat: () => times(200, () => pick(["", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"]) +
      times(1 + below(3), () => `<|im_start|>user\n${pick([sentence, problem, () => pick(scripts), () => pick(code)])()}<|im_end|>\n<|im_start|>assistant\n${pick(["", "<think>\n\n</think>\n\n", "<think>\n" + sentence() + "\n</think>\n\n"])}${sentence()}<|im_end|>\n`).join("") +
      pick(["", "<|im_start|>assistant\n", "<|im_start|>user\n<tool_response>\n{\"a\": 1}\n</tool_response><|im_end|>\n", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"])),
    whitespace: () => [...spaces, ...times(460, () => times(1 + below(8), () => pick([() => pick(spaces), () => pick(spaces), () => pick(words), () => pick(["(", "!", "7", "好"])])()).join(""))],
    repeats: () => times(420, () => pick(["a", "b", "e", "the", "ab", " ", "\n", "\t", "=", "-", "#", "ha", "0", "1", "12", "。", "哈", "é", "😀", "\r\n", " a", "a ", "\n ", "xyz", "<", "A", "'s"]).repeat(1 + below(pick([6, 20, 70])))),
    special: () => [...special, ...nearSpecial, ...times(460, () => times(1 + below(6), () => pick([() => pick(special), () => pick(special), () => pick(nearSpecial), () => pick(words), () => pick(spaces), () => pick(contractions)])()).join(""))],
    contractions: () => [...contractions, ...times(220, () => times(1 + below(5), () => pick([() => pick(contractions), () => pick(contractions), () => pick(words), () => pick([" ", "\n", "1", "."])])()).join(""))],
    digits: () => times(240, () => times(1 + below(5), numbers).join(pick(["", " ", " + ", ", ", "\n", "x"]))),
    emoji: () => [...emoji, ...times(220, () => times(1 + below(6), () => pick([() => pick(emoji), () => pick(emoji), () => pick(words), () => " "])()).join(""))],
    marks: () => times(420, () => times(1 + below(4), () => pick(bases) + times(below(pick([2, 4, 8, 45])), mark).join("")).join(pick(["", " "]))),
    hangul: () => times(220, () => times(1 + below(8), jamo).join("")),
    control: () => [...control, ...times(200, () => times(1 + below(6), () => pick([() => pick(control), () => pick(words), () => pick(spaces)])()).join(""))],
    punctuation: () => times(220, () => times(1 + below(10), () => pick([() => cp(0x21, 0x2f), () => cp(0x3a, 0x40), () => cp(0x5b, 0x60), () => cp(0x7b, 0x7e), () => cp(0xa1, 0xbf), () => cp(0x2010, 0x205e), () => cp(0x3001, 0x3011), () => pick([" ", "a", "\n", "\r\n"])])()).join("")),
    planes: () => times(340, () => times(1 + below(8), () => { for (;;) { const c = below(pick([0x800, 0x10000, 0x20000, 0x30000, 0x110000])); if (c < 0xd800 || c > 0xdfff) return String.fromCodePoint(c); } }).join("")),
    mixed: () => times(260, () => times(2 + below(6), () => pick([() => pick(english), () => pick(scripts), () => pick(code), () => pick(emoji), () => pick(special), numbers, () => pick(spaces), () => pick(bases) + mark()])()).join(pick(["", " "]))),
    long: () => ["", "a".repeat(3000), "ab".repeat(1500), " ".repeat(2000), "\n".repeat(900), "x y ".repeat(400), "好".repeat(500), "<".repeat(700), "e\u0301".repeat(400), "a" + "\u0301".repeat(200), "9".repeat(400), times(60, sentence).join(" ")],
  };
  return Object.entries(categories).map(([name, make]) => ({ name, texts: [...new Set(make())] }));
}

// sweep yields many more strings than are kept: every code point in six
// contexts, random marks and Hangul, and random white space and emoji.
export function sweep() {
  const out = [];
  for (let c = 0; c <= 0x10ffff; c++) {
    if ((c >= 0xd800 && c <= 0xdfff) || (c >= 0x32000 && c < 0xe0000) || (c >= 0xe0200 && c < 0xffff0 && c % 997) || (c > 0xfffff && c % 997)) continue;
    const s = String.fromCodePoint(c);
    out.push(s, `a${s}b`, ` ${s}`, `${s} ${s}`, `'${s}1`, `\n${s}!`);
  }
  for (let i = 0; i < 62000; i++) out.push(i % 2 ? times(1 + below(4), () => pick(bases) + times(below(pick([3, 9, 45])), mark).join("")).join("") : times(1 + below(9), jamo).join(""));
  for (let i = 0; i < 100000; i++) out.push(times(1 + below(9), () => pick([spaces, contractions, emoji, special, nearSpecial, words, control].map((l) => () => pick(l)))()).join(""));
  for (const m of marks) for (const n of marks) out.push("a" + String.fromCodePoint(m, n));
  for (let c = 0x300; c <= 0x1ffff; c++) if (c < 0xd800 || c > 0xdfff) { const s = String.fromCodePoint(c); if (/\p{M}/u.test(s)) for (let i = 0; i < 12; i++) out.push(pick(bases) + s + mark() + s + mark()); }
  return out;
}
