package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/decoder"
	"windrow/engine"
)

// Defaults of decoding, from the WeDLM paper's open settings (see
// docs/architecture.md, terms W, τ and λ).
const (
	defaultWindow     = 16
	defaultThreshold  = "0.4"
	defaultPosPenalty = 0.02
)

// modeAuto is the mode that the model decides: verified for a model that was
// trained to fill masks, ar for any other.
const modeAuto = "auto"

// The headings of a command's help.
const (
	categoryModel    = "Model"
	categoryPrompt   = "Prompt"
	categoryDecoding = "Decoding"
	categorySampling = "Sampling"
	categoryOutput   = "Output"
)

// modelFlags choose the model and the machine.
func modelFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Category: categoryModel, Usage: "model `PATH`: a folder with config.json, safetensors and tokenizer.json, a .gguf file, or hf:ORG/NAME of the cache", DefaultText: "the embedded tiny-gsm"},
	}, machineFlags()...)
}

// machineFlags choose where and in which arithmetic a model runs.
func machineFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "backend", Category: categoryModel, Value: engine.Auto, Usage: "`DEVICE` to run on: auto (a GPU that holds the weights, else the CPU), cpu, cuda, or metal (Apple GPUs; not yet run on hardware)"},
		&cli.StringFlag{Name: "cuda-library", Category: categoryModel, Hidden: true, EnvVars: []string{"WINDROW_CUDA_LIBRARY"}, Usage: "the driver's library, `PATH`"},
		&cli.IntFlag{Name: "tensor-parallel-size", Category: categoryModel, Value: 1, Usage: "share the model among `N` NVIDIA GPUs of this machine, through NCCL: those of numbers 0 to N-1"},
		&cli.BoolFlag{Name: "cpu-moe", Category: categoryModel, Usage: "with CUDA: leave the experts of a mixture in host memory, where the CPU runs them; the GPU has all else"},
		&cli.IntFlag{Name: "n-cpu-moe", Category: categoryModel, Usage: "the same for the experts of the first `N` layers"},
		&cli.IntFlag{Name: "threads", Category: categoryModel, DefaultText: "one per core", Usage: "`N` CPU threads"},
		&cli.BoolFlag{Name: "exact", Category: categoryModel, Usage: "keep activations in f32 in every operation"},
		&cli.StringFlag{Name: "kv-dtype", Category: categoryModel, DefaultText: "bf16, or f32 with --exact", Usage: "`TYPE` of stored keys and values: f32, f16 (not with CUDA), bf16 or int8"},
		&cli.BoolFlag{Name: "batch-invariant", Category: categoryModel, Value: true, Usage: "give a row the same bits whatever other rows ride along; with --batch-invariant=false steps of more than 32 rows of several sequences are faster on CUDA (other backends have nothing faster)"},
		&cli.IntFlag{Name: "state-cache", Category: categoryModel, Value: paging.DefaultMarks, Usage: "of models with recurrent layers keep the states of `N` places that conversations may go back to"},
		&cli.StringFlag{Name: "kernels", Category: categoryModel, Hidden: true, Usage: "force a kernel set: `NAME`"},
	}
}

// promptFlags say how a question becomes a prompt.
func promptFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "system", Category: categoryPrompt, Usage: "system message, `TEXT`"},
		&cli.BoolFlag{Name: "no-think", Category: categoryPrompt, Usage: "ask the chat template for an answer without a thinking part (Qwen3)"},
	}
}

func rawFlag() cli.Flag {
	return &cli.BoolFlag{Name: "raw", Category: categoryPrompt, Usage: "take the text as it stands, without the chat template"}
}

// cacheFlags make the KV cache rotate.
func cacheFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "kv-window", Category: categoryModel, Usage: "keep keys and values of `N` tokens only, the oldest dropped (0: all)"},
		&cli.IntFlag{Name: "kv-keep", Category: categoryModel, Value: 4, Usage: "with --kv-window: never drop the first `N` tokens"},
	}
}

// decodeFlags say how to decode; mode is the mode flag, which eval can repeat.
func decodeFlags(mode cli.Flag) []cli.Flag {
	return []cli.Flag{
		mode,
		&cli.StringFlag{Name: "window", Category: categoryDecoding, Value: strconv.Itoa(defaultWindow), Usage: "W, the window's `SLOTS`"},
		&cli.StringFlag{Name: "entropy-threshold", Category: categoryDecoding, Value: defaultThreshold, Usage: "τ, the entropy in `NATS` under which a mask is filled; none: one token per step"},
		&cli.Float64Flag{Name: "pos-penalty", Category: categoryDecoding, Value: defaultPosPenalty, Usage: "λ, `NATS` per slot of distance from the first mask"},
		&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Category: categoryDecoding, DefaultText: "the model's max_new_tokens or 512, within its context", Usage: "most `TOKENS` to generate"},
		&cli.StringSliceFlag{Name: "stop", Category: categoryDecoding, Usage: "end before this `TEXT` (repeatable)"},
		&cli.IntFlag{Name: "mask-id", Category: categoryDecoding, Value: -1, DefaultText: "the config's", Usage: "mask token `ID`"},
		&cli.Float64Flag{Name: "temperature", Aliases: []string{"t"}, Category: categorySampling, Usage: "`T`; 0 is greedy"},
		&cli.IntFlag{Name: "top-k", Category: categorySampling, Usage: "sample from the `K` likeliest tokens (0: off)"},
		&cli.Float64Flag{Name: "top-p", Category: categorySampling, Value: 1, Usage: "sample from the likeliest tokens that make up `P` (1: off)"},
		&cli.Float64Flag{Name: "min-p", Category: categorySampling, Usage: "drop tokens under `P` times the likeliest (0: off)"},
		&cli.Float64Flag{Name: "repetition-penalty", Category: categorySampling, Value: 1, Usage: "divide the logits of seen tokens by `R` (1: off)"},
		&cli.Float64Flag{Name: "presence-penalty", Category: categorySampling, Usage: "subtract `P` from the logits of generated tokens"},
		&cli.Float64Flag{Name: "frequency-penalty", Category: categorySampling, Usage: "subtract `P` times its count from a token's logit"},
		&cli.StringSliceFlag{Name: "logit-bias", Category: categorySampling, Usage: "add to a token's logit, `ID=BIAS` (repeatable)"},
		&cli.Uint64Flag{Name: "seed", Category: categorySampling, Usage: "`SEED`: the same seed gives the same output; ar and verified give the same, at any window"},
	}
}

// adaptiveFlags are decodeFlags of a command whose window can adapt.
func adaptiveFlags(mode cli.Flag) []cli.Flag {
	flags := decodeFlags(mode)
	for _, f := range flags {
		if s, ok := f.(*cli.StringFlag); ok && s.Name == "window" {
			s.Value, s.DefaultText = "", fmt.Sprintf("auto in verified, else %d", defaultWindow)
			s.Usage = "W, the window's `SLOTS`; auto: as many, step by step, as promise the most tokens per second (wedlm's text may then differ between machines and days)"
		}
	}
	return flags
}

func modeFlag() cli.Flag {
	return &cli.StringFlag{Name: "mode", Category: categoryDecoding, Value: modeAuto, Usage: "`MODE`: ar, wedlm, verified, or auto (verified where there is a mask token, or a head for drafts, else ar)"}
}

// cacheVariable is the environment variable that names the folder of what was
// measured, or "off" for none; by default it lies in the user's cache folder.
const cacheVariable = "WINDROW_CACHE"

// measurements are where this program keeps what it measured.
func measurements() engine.Measurements {
	return engine.Measurements{Folder: os.Getenv(cacheVariable), Build: versionLine()}
}

// parseMachine reads the flags that choose the machine and what is fixed for an
// open model. Where the advice takes two flags it checks them itself, else
// engine.Options does.
func parseMachine(c *cli.Context) (engine.Options, error) {
	o := engine.Options{
		Backend: c.String("backend"), GPUs: c.Int("tensor-parallel-size"), Threads: c.Int("threads"), Kernels: c.String("kernels"),
		Exact: c.Bool("exact"), BatchVariant: !c.Bool("batch-invariant"), CUDALibrary: c.String("cuda-library"),
		KVWindow: c.Int("kv-window"), KVKeep: c.Int("kv-keep"), StateCache: c.Int("state-cache"), NoThink: c.Bool("no-think"), Measurements: measurements(),
		Note:     func(line string) { fmt.Fprintln(c.App.ErrWriter, line) },
		Progress: uploadProgress(c.App.ErrWriter),
	}
	if o.StateCache == 0 && c.IsSet("state-cache") {
		o.StateCache = -1
	}
	if err := parseHostLayers(c, &o); err != nil {
		return o, err
	}
	switch gpu := o.Backend == engine.CUDA || o.Backend == engine.Metal; {
	case gpu && o.Kernels != "":
		return o, usagef("--kernels %s: names kernels of the CPU, with --backend %s there are none to choose", o.Kernels, o.Backend)
	case o.GPUs < 1:
		return o, usagef("--tensor-parallel-size %d: want 1 to %d", o.GPUs, engine.MaxGPUs)
	case o.GPUs > 1 && (o.Backend == engine.CPU || o.Backend == engine.Metal || o.Kernels != ""):
		return o, usagef("--tensor-parallel-size %d: shares a model among NVIDIA GPUs, want --backend cuda", o.GPUs)
	case c.Int("state-cache") < 0:
		return o, usagef("--state-cache %d: want 0 (none) or more", c.Int("state-cache"))
	case o.KVWindow < 0 || o.KVKeep < 0 || o.KVWindow > 0 && o.KVKeep >= o.KVWindow:
		return o, usagef("--kv-window %d --kv-keep %d: want 0 ≤ keep < window", o.KVWindow, o.KVKeep)
	}
	if name := c.String("kv-dtype"); name != "" {
		kv, err := backend.ParseKVType(name)
		if err != nil {
			return o, usagef("--kv-dtype %q: want f32, f16, bf16 or int8", name)
		}
		o.KV = kv
	}
	if c.IsSet("mask-id") {
		id := c.Int("mask-id")
		if id < 0 || id > math.MaxInt32 {
			return o, usagef("--mask-id %d: want a token id", id)
		}
		mask := int32(id)
		o.MaskID = &mask
	}
	return o, advised(o.Check())
}

// parseHostLayers reads of which layers experts stay in the host's memory.
func parseHostLayers(c *cli.Context, o *engine.Options) error {
	flag := ""
	switch n := c.Int("n-cpu-moe"); {
	case c.Bool("cpu-moe") && c.IsSet("n-cpu-moe"):
		return usagef("--cpu-moe and --n-cpu-moe: want one of them")
	case n < 0:
		return usagef("--n-cpu-moe %d: want 0 or more layers", n)
	case c.Bool("cpu-moe"):
		flag, o.HostLayers = "--cpu-moe", engine.AllLayers
	case n > 0:
		flag, o.HostLayers = fmt.Sprintf("--n-cpu-moe %d", n), n
	default:
		return nil
	}
	switch {
	case o.Backend == engine.CPU || o.Backend == engine.Metal || o.Kernels != "":
		return usagef("%s: leaves experts in host memory beside an NVIDIA GPU, want --backend cuda: elsewhere all weights are there", flag)
	case o.GPUs > 1:
		return usagef("%s: goes with one GPU, of several each has a part of every expert: leave --tensor-parallel-size out", flag)
	}
	return nil
}

// parseMode reads one mode; "auto" is the empty mode until a model is known.
func parseMode(s string) (decoder.Mode, error) {
	switch m := decoder.Mode(s); m {
	case decoder.AR, decoder.WeDLM, decoder.Verified:
		return m, nil
	case modeAuto:
		return "", nil
	}
	return "", usagef("--mode %q: want auto, ar, wedlm or verified", s)
}

// parseDecode is parseAdaptive for commands that take a fixed window only.
func parseDecode(c *cli.Context) (decoder.Options, error) {
	o, w, err := parseAdaptive(c)
	if err == nil && w.auto {
		err = usagef("--window auto: this command compares fixed windows, want a number")
	}
	return o, err
}

// parseAdaptive reads the decoding flags, the mode apart, and checks their
// ranges before any model is opened. MaxTokens is 0 where the model is to
// decide.
func parseAdaptive(c *cli.Context) (decoder.Options, windowChoice, error) {
	w, slots, err := parseWindow(c)
	if err != nil {
		return decoder.Options{}, w, err
	}
	o, err := parseOptions(c, slots)
	return o, w, err
}

func parseOptions(c *cli.Context, window int) (decoder.Options, error) {
	o := decoder.Options{
		Window:      window,
		PosPenalty:  float32(c.Float64("pos-penalty")),
		MaxTokens:   c.Int("max-tokens"),
		StopStrings: c.StringSlice("stop"),
		Sampling: decoder.Sampling{
			Temperature:       float32(c.Float64("temperature")),
			TopK:              c.Int("top-k"),
			TopP:              float32(c.Float64("top-p")),
			MinP:              float32(c.Float64("min-p")),
			RepetitionPenalty: float32(c.Float64("repetition-penalty")),
			PresencePenalty:   float32(c.Float64("presence-penalty")),
			FrequencyPenalty:  float32(c.Float64("frequency-penalty")),
			Seed:              c.Uint64("seed"),
		},
	}
	var err error
	if o.EntropyThreshold, err = parseThreshold(c.String("entropy-threshold")); err != nil {
		return o, err
	}
	if o.Sampling.LogitBias, err = parseLogitBias(c.StringSlice("logit-bias")); err != nil {
		return o, err
	}
	check := o
	check.Mode, check.Vocabulary.MaskID = decoder.WeDLM, 0 // the mode with a window
	if !c.IsSet("max-tokens") {
		check.MaxTokens = 1
	}
	return o, advised(check.Validate())
}

// parseThreshold reads τ: a number of nats, or "none" for one token per step.
func parseThreshold(s string) (*float32, error) {
	if s == "none" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return nil, usagef("--entropy-threshold %q: want nats, 0 or more (100 takes every draft), or none", s)
	}
	t := float32(v)
	return &t, nil
}

func parseLogitBias(pairs []string) (map[int32]float32, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	bias := map[int32]float32{}
	for _, p := range pairs {
		id, value, ok := strings.Cut(p, "=")
		i, err1 := strconv.ParseInt(id, 10, 32)
		v, err2 := strconv.ParseFloat(value, 32)
		if !ok || err1 != nil || err2 != nil {
			return nil, usagef("--logit-bias %q: want ID=BIAS, such as 42=-100", p)
		}
		bias[int32(i)] = float32(v)
	}
	return bias, nil
}
