package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"windrow/cuda/driver"
)

// NCCLVariable names NCCL's library by its path, or turns it off.
const NCCLVariable = "WINDROW_NCCL"

// ErrNoNCCL is what NewGroup's error wraps where NCCL is not on this machine, or
// too old.
var ErrNoNCCL = errors.New("cuda: several GPUs need NCCL")

// ncclOldest is the first version whose exchanges graphs capture without
// leaving some behind, as ncclGetVersion counts.
const ncclOldest = 20906

// NCCL is NVIDIA's communication library, opened at run time where more than
// one GPU is asked for.
type NCCL struct {
	library                        *driver.Library
	version                        int // 22703 is 2.27.3
	initialise, destroy, abort     uintptr
	gather, reduce, versionAddress uintptr
}

// ncclPaths lists where NCCL may be: the loader's own path, then toolkits, then
// what Python packages carry.
func ncclPaths() []string {
	if runtime.GOOS == "windows" {
		return nil // NVIDIA publishes none
	}
	const name = "libnccl.so.2"
	paths := []string{name}
	for _, f := range libraryFolders() {
		path := filepath.Join(f, name)
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// FindNCCL opens the first library that is new enough. Its error wraps ErrNoNCCL
// and says what was found.
func FindNCCL() (*NCCL, error) {
	var paths []string
	switch path := os.Getenv(NCCLVariable); path {
	case "off":
		return nil, fmt.Errorf("%w: %s is off", ErrNoNCCL, NCCLVariable)
	case "":
		paths = ncclPaths()
	default:
		n, err := openNCCL(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrNoNCCL, NCCLVariable, err)
		}
		return n, nil
	}
	var refused error
	for _, path := range paths {
		n, err := openNCCL(path)
		if err == nil {
			return n, nil
		}
		// A bare name that is nowhere says no more than that nothing was found.
		if filepath.IsAbs(path) && refused == nil {
			refused = err
		}
	}
	if refused != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoNCCL, refused)
	}
	return nil, fmt.Errorf("%w: no libnccl.so.2 found (%s may name it)", ErrNoNCCL, NCCLVariable)
}

func openNCCL(path string) (*NCCL, error) {
	ncclEnvironment()
	l, err := driver.OpenLibrary(path)
	if err != nil {
		return nil, err
	}
	n := &NCCL{library: l}
	if err := n.bind(); err != nil {
		return nil, err
	}
	if n.version < ncclOldest {
		return nil, fmt.Errorf("%s is version %s, want 2.9.6 or later", path, n.VersionText())
	}
	return n, nil
}

// ncclEnvironment sets what NCCL reads when it starts, where nobody has. Exchanges
// of one communicator never overlap here, so that graphs need no events between
// them, which stall a step; all connections are made at the start, and no
// buffers are registered, so that no capture waits for another one.
func ncclEnvironment() {
	for _, name := range []string{"NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER", "NCCL_RUNTIME_CONNECT"} {
		if _, set := os.LookupEnv(name); !set {
			os.Setenv(name, "0")
		}
	}
}

func (n *NCCL) bind() error {
	for _, f := range []struct {
		name    string
		address *uintptr
	}{
		{"ncclGetVersion", &n.versionAddress},
		{"ncclCommInitAll", &n.initialise}, {"ncclCommDestroy", &n.destroy}, {"ncclCommAbort", &n.abort},
		{"ncclAllGather", &n.gather}, {"ncclAllReduce", &n.reduce},
	} {
		address, err := n.library.Symbol(f.name)
		if err != nil {
			return err
		}
		*f.address = address
	}
	return n.readVersion()
}

// VersionText is the version as NVIDIA writes it. Up to 2.8 a minor version had
// one digit.
func (n *NCCL) VersionText() string {
	v := n.version
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Text is the version and the path.
func (n *NCCL) Text() string { return n.VersionText() + ", " + n.library.Path }
