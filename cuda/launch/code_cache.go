package launch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"windrow/cuda/driver"
	"windrow/internal/atomicfile"
)

// CodeCache is a folder of kernels as a driver has translated them; "": none is kept.
//
// A file is a SHA-256 of what follows, and the code. Its name tells driver, device and PTX.
type CodeCache string

const (
	// codeAge is for how long files are kept that nobody has used.
	codeAge = 60 * 24 * time.Hour
	// codeTouched is how old a file is when its use is noted.
	codeTouched  = 24 * time.Hour
	codeSuffix   = ".cubin"
	mostCodeFile = 64 << 20
)

// whole reports whether kernels of a file are translated as whole programs: the linker's
// code for products of warpgroups (wgmma) is slower, presumably as it may call what it does
// not know, and they wait for each other. qwen3-8b in 4 bits took 3.40 ms for 16 rows so,
// and 2.75 as a whole.
func whole(file string) bool { return strings.HasSuffix(file, "_hopper") }

// load translates the PTX of a kernel of a file, or takes what an earlier process has made
// of it. What is to be whole the driver loads, and keeps in its own cache.
func (c CodeCache) load(ctx *driver.Context, file string, ptx []byte) (*driver.Module, error) {
	if whole(file) {
		return ctx.Load(ptx)
	}
	path := c.path(ctx.Info(), ptx)
	if code := readCode(path); code != nil {
		if m, err := ctx.LoadCode(code, ptx); err == nil {
			return m, nil
		}
		os.Remove(path) // of another driver after all
	}
	code, err := ctx.Translate(ptx)
	if err != nil {
		return ctx.Load(ptx) // which says why, if it is not the linker's fault
	}
	m, err := ctx.LoadCode(code, ptx)
	if err != nil {
		return ctx.Load(ptx)
	}
	writeCode(path, code)
	return m, nil
}

// path is where the code of PTX lies; "" is nowhere.
func (c CodeCache) path(i driver.DeviceInfo, ptx []byte) string {
	if c == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%v %d.%d %s\n", i.DriverVersion, i.Major, i.Minor, i.Name)
	h.Write(ptx)
	return filepath.Join(string(c), hex.EncodeToString(h.Sum(nil)[:16])+codeSuffix)
}

// readCode is nil where there is no whole file.
func readCode(path string) []byte {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostCodeFile {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, mostCodeFile))
	if err != nil || len(data) <= sha256.Size {
		return nil
	}
	code := data[sha256.Size:]
	if sum := sha256.Sum256(code); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil
	}
	if now := time.Now(); now.Sub(info.ModTime()) > codeTouched {
		os.Chtimes(path, now, now)
	}
	return code
}

// writeCode keeps code, if it can: nothing is lost where it cannot.
func writeCode(path string, code []byte) {
	if path == "" {
		return
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return
	}
	sum := sha256.Sum256(code)
	atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(sum[:], code...))
		return err
	})
}

// Prune removes what nobody has used for long, and what was never finished.
func (c CodeCache) Prune() {
	if c == "" {
		return
	}
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < codeAge {
			continue
		}
		if strings.HasSuffix(e.Name(), codeSuffix) || atomicfile.IsTemporary(e.Name()) {
			os.Remove(filepath.Join(string(c), e.Name()))
		}
	}
}
