package engine

import (
	"fmt"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/tokenizer"
)

// The names of the backends. Auto takes a GPU that can hold the weights, else the
// CPU.
const (
	Auto  = "auto"
	CPU   = "cpu"
	CUDA  = "cuda"
	Metal = "metal"
)

// The bounds of Options, far more than a machine has.
const (
	MaxGPUs    = 64
	MaxThreads = 1024 // as package cpu has it
)

// AllLayers are those of a model, however many it has.
const AllLayers = -1

// Options say where and in which arithmetic a model runs. The zero value is a
// good choice on any machine.
type Options struct {
	// Backend is Auto (or ""), CPU, CUDA or Metal.
	Backend string
	// GPUs is how many NVIDIA GPUs share the model: those of numbers 0 to
	// GPUs-1. 0 or 1: one.
	GPUs int
	// HostLayers is of how many layers, the first ones, the experts of a mixture stay in the
	// host's memory, where the CPU runs them, while an NVIDIA GPU has all else; AllLayers: of
	// each. On other devices it changes nothing.
	HostLayers int
	// CUDALibrary is the path of the CUDA driver's library; "": searched for.
	CUDALibrary string
	// Threads is the number of CPU threads; 0: one per core.
	Threads int
	// Kernels names a set of the CPU's kernels; "": the best.
	Kernels string
	// Exact keeps activations in f32 in every operation.
	Exact bool
	// BatchVariant allows forwards in which a row's bits depend on the rows
	// beside it: large ones of several sequences are then faster on CUDA.
	BatchVariant bool
	// KV is the type of stored keys and values; 0: bf16, or f32 with Exact.
	KV backend.KVType
	// KVWindow, where not 0, keeps keys and values of so many tokens only: the
	// first KVKeep and the newest.
	KVWindow, KVKeep int
	// StateCache is how many places that conversations may go back to have their states
	// kept, of models with recurrent layers: 0 is 8, negative none. Each takes what a
	// sequence's states take; they go before a forward lacks memory.
	StateCache int
	// NoHead leaves the model's own head for drafts alone, where it has one: else its keys
	// and values are kept beside those of the model's layers.
	NoHead bool
	// NeedHead makes it an error where that head cannot be loaded: else a Note says so, also
	// where its logits are not finite later, and the model drafts without.
	NeedHead bool
	// Tokenizer is OpenSource's; nil: none. Open reads the model's own.
	Tokenizer *tokenizer.Tokenizer
	// MaskID is the mask token's id; nil: the config's.
	MaskID *int32
	// NoThink asks the chat template for an answer without a thinking part.
	NoThink bool
	// Timeline has the kernels of an NVIDIA GPU tell when they run, for
	// [Stopwatch.Timeline]: forwards take some percent longer.
	Timeline bool
	// Measurements says where measurements of this machine are kept.
	Measurements Measurements
	// Note, where set, is given a line for people, such as why a GPU that is
	// there is not used. Progress is given how many of the weights' bytes have
	// been uploaded to a device. Both are called during Open only, but for the Note of a
	// head for drafts that turns out to be broken when it drafts.
	Note     func(line string)
	Progress func(done, total int64)
}

// Check returns the first option out of range, as a *decoder.OptionError.
func (o Options) Check() error {
	gpu := o.Backend == CUDA || o.Backend == Metal
	switch o.Backend {
	case "", Auto, CPU, CUDA, Metal:
	default:
		return &decoder.OptionError{Option: "backend", Got: fmt.Sprintf("%q", o.Backend), Want: "auto, cpu, cuda or metal"}
	}
	switch {
	case gpu && o.Kernels != "":
		return &decoder.OptionError{Option: "kernels", Got: o.Kernels, Want: "none: they are the CPU's, backend " + o.Backend + " has none to choose"}
	case o.GPUs < 0 || o.GPUs > MaxGPUs:
		return &decoder.OptionError{Option: "tensor-parallel-size", Got: fmt.Sprint(o.GPUs), Want: fmt.Sprintf("1 to %d", MaxGPUs)}
	case o.GPUs > 1 && (o.Backend == CPU || o.Backend == Metal || o.Kernels != ""):
		return &decoder.OptionError{Option: "tensor-parallel-size", Got: fmt.Sprint(o.GPUs), Want: "1, or backend cuda: NVIDIA GPUs share a model"}
	case o.HostLayers < AllLayers:
		return &decoder.OptionError{Option: "n-cpu-moe", Got: fmt.Sprint(o.HostLayers), Want: "0 or more layers"}
	case o.HostLayers != 0 && (o.Backend == CPU || o.Backend == Metal || o.Kernels != ""):
		return o.hostError("backend cuda: elsewhere all weights are in the host's memory")
	case o.HostLayers != 0 && o.GPUs > 1:
		return o.hostError("one GPU: several share the experts")
	case o.Timeline && (o.Backend != CUDA || o.GPUs > 1):
		return &decoder.OptionError{Option: "timeline", Got: "(kernels that tell when they run)", Want: "backend cuda, one GPU"}
	case o.Threads < 0 || o.Threads > MaxThreads:
		return &decoder.OptionError{Option: "threads", Got: fmt.Sprint(o.Threads), Want: fmt.Sprintf("0 to %d", MaxThreads)}
	case o.KV > backend.KVF16:
		return &decoder.OptionError{Option: "kv-dtype", Got: o.KV.String(), Want: "f32, f16, bf16 or int8"}
	case o.KVWindow < 0 || o.KVKeep < 0 || o.KVWindow > 0 && o.KVKeep >= o.KVWindow:
		return &decoder.OptionError{Option: "kv-window", Got: fmt.Sprintf("%d, of which the first %d are kept", o.KVWindow, o.KVKeep), Want: "0 ≤ keep < window"}
	}
	return nil
}

// hostError refuses HostLayers.
func (o Options) hostError(want string) error {
	if o.HostLayers == AllLayers {
		return &decoder.OptionError{Option: "cpu-moe", Got: "(experts in the host's memory)", Want: want}
	}
	return &decoder.OptionError{Option: "n-cpu-moe", Got: fmt.Sprint(o.HostLayers), Want: want}
}

// hostLayers is of how many layers of a model experts stay in the host's memory; an error
// where it has none, or fewer.
func (o Options) hostLayers(c *checkpoint.Config) (int, error) {
	switch {
	case o.HostLayers == 0:
		return 0, nil
	case c.Experts == nil:
		return 0, o.hostError("a mixture of experts: this model is dense")
	case o.HostLayers > c.Layers:
		return 0, o.hostError(fmt.Sprintf("at most %d, the model's layers", c.Layers))
	case o.HostLayers == AllLayers:
		return c.Layers, nil
	}
	return o.HostLayers, nil
}

// KVType is the type of stored keys and values that the options come to.
func (o Options) KVType() backend.KVType {
	switch {
	case o.KV != 0:
		return o.KV
	case o.Exact:
		return backend.KVF32
	}
	return backend.KVBF16
}
