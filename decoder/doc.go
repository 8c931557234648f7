// Package decoder generates tokens from a language model: one per forward
// (ar), in a window (wedlm, arXiv 2512.22737), or in a window whose drafts the
// same weights verify in the next forward (verified).
//
// It is pure Go over two contracts: an [Engine] that runs packed rows and a
// [model.Cache] that counts what is permanent. It plans rows and absorbs
// results, so it runs on scripted engines in tests as it does on a model.
// [Sequence] is one generation that its owner drives, alone or among others;
// [Generate] drives one to its end; [CacheSize] tells how large a cache it needs.
//
// # One step
//
// A mode is a stepper: it plans the rows of one forward, then absorbs their
// results: emits tokens, says how many rows become permanent, and fills
// slots. Planning changes nothing, so a cancelled forward leaves no trace and
// may be planned again. The modes are in ar.go, wedlm.go and verified.go,
// each as readable as its pseudo-code:
//
//   - ar feeds the last token; its row gives the next one. The prompt's last
//     row gives the first, so N tokens take N-1 forwards.
//   - wedlm feeds the window's filled slots, then its masks. The filled slots
//     from the left edge become permanent, then masks whose entropy, plus a
//     penalty for distance, is under the threshold are filled.
//   - verified feeds a token that is right by construction, drafts, and masks.
//     The filled rows' own causal predictions check the drafts.
//
// # Adaptive window
//
// With a [CostModel], c(rows), W is an upper bound and each step chooses its
// rows for the most tokens per second: in verified as a decision process over
// the chances that drafts stand, learnt by their entropy
// (controller_verified.go), in wedlm from the chances that masks pass the
// threshold (controller_wedlm.go). A ledger bounds what it may lose: N tokens of
// verified cost at most as much as 1.02·N + 2 steps of one row, by the table.
// Choices depend on the table and the tokens only, never on a clock.
//
// Where several sequences share a forward a row of verified has a [Price]
// instead, which their owner sets (Sequence.Share). What texts have shown is kept
// for later ones by an [Experience], if the options have one.
//
// # Drafters
//
// Beside masks, verified takes drafts from what followed the same tokens before
// (lookup.go) and from smaller models ([Drafter]), for any model: docs/drafts.md.
//
// # Sampling
//
// Every mode maps a row's raw logits to a distribution by one function, in
// one order: repetition, presence and frequency penalties; logit bias; barred
// ids; top-k; top-p and min-p on the untempered probabilities of what is left;
// temperature. Temperature 0 takes the largest adjusted logit, the lowest id on
// a tie. Entropies, which decide the fills, are of the raw logits.
//
// A token is drawn by variables made of the seed, its logical position and the
// token ids alone (draw.go). So sampled verified gives ar's very tokens under
// one seed, at any window and across pauses.
//
// The repetition penalty counts prompt and output, presence and frequency
// count the output, as vLLM has it. For a mask row of wedlm the output is what
// the row sees: committed tokens and every filled slot, also to its right.
package decoder
