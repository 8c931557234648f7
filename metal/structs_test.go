package metal

import (
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/kernels"
)

// everyDispatch encodes what a forward can be made of: each launcher, in the
// types and sizes that choose another kernel.
func everyDispatch() recorder {
	var r recorder
	something := new(driver.Buffer)
	v := func(e elem) view { return view{buffer: something, elem: e} }
	types := []elem{elemF32, elemBF16}
	for _, dst := range types {
		rmsNorm(&r, v(dst), v(elemF32), v(elemF32), 2, 64, 1e-6)
		putColumns(&r, v(dst), v(elemF32), 2, 192, 64, 128)
		rmsNormWanted(&r, v(dst), v(elemF32), v(elemF32), v(elemU32), 2, 64, 1e-6)
		gateRows(&r, v(dst), v(elemF32), v(elemF32), 100)
	}
	convertRows(&r, v(elemF32), v(elemBF16), 100)
	convertRows(&r, v(elemBF16), v(elemF32), 100)
	routeRows(&r, v(elemF32), v(elemF32), 2, 8, 2, true)
	sortPairs(&r, v(elemF32), v(elemF32), v(elemF32), 2, 8, 2)
	addExperts(&r, v(elemF32), v(elemF32), v(elemF32), v(elemF32), v(elemF32), 2, 64, 2)
	for _, n := range deltaDims {
		shape := backend.StateShape{KeyHeads: 1, ValueHeads: 2, KeyDim: n, ValueDim: 32, Conv: 4}
		w := workAt(v(elemF32), shape, 2)
		deltaNet(&r, v(types[n/128%2]), w, delta{StateShape: shape, logRows: 4, rows: 2})
	}
	rowResults(&r, v(elemBytes), v(elemBytes), v(elemF32), 2, 1000, 0, -1, 4)

	for dt := backend.F32; dt <= backend.Q6_K; dt++ {
		for _, in := range []int{256, 33} {
			if dt.Quantized() && in == 33 {
				continue
			}
			w := linear{weight: weight{dtype: dt, out: 64, in: in, data: v(weightElem(dt))}, bias: v(elemF32)}
			if dt.Affine() {
				w.group, w.scales, w.biases = 64, v(elemBF16), v(elemBF16)
			}
			embedRows(&r, v(elemF32), w.weight, v(elemU32), 2)
			projectRouter(&r, v(elemF32), v(elemF32), 2, w.weight)
			for _, x := range types {
				if x == elemF32 || in%matrixUnit == 0 {
					projectExperts(&r, v(elemF32), v(x), v(elemF32), v(elemF32), 2, 2, 2, expertWeights{weight: w.weight, second: weightBuffers{w.data, w.scales, w.biases}, places: v(elemU32), experts: 8, allExperts: 8})
				}
				for _, rows := range []int{1, 9, 17, 64 * leastPrefill} {
					project(&r, []view{v(elemF32), v(elemF32)}, v(x), rows, []linear{w, w}, rows <= windowRows)
					projectAdd(&r, v(elemF32), v(x), rows, w, rows <= windowRows)
					gatedProject(&r, v(x), v(x), rows, w, w, rows <= windowRows)
				}
				projection{dst: []view{v(elemF32)}, x: v(x), rows: 1, w: []linear{w}, decode: true}.matvec(&r)
			}
		}
	}
	for _, kv := range rotateTypes {
		for _, q := range types {
			for _, dim := range []int{64, 80, 128, 256} {
				kv := kv
				kv.k.buffer, kv.v, kv.table, kv.page, kv.slots = something, v(kv.k.elem), v(elemU32), 1<<20, 300
				if kv.dtype == backend.KVInt8 {
					kv.kScales, kv.vScales = v(elemF32), v(elemF32)
				}
				rotateStore(&r, v(q), v(elemF32), v(elemF32), v(elemF32), rotation{angles: v(elemF32), positions: v(elemU32), pairs: dim / 2, heads: 4, kvHeads: 2, headDim: dim, gated: true}, kv, 100, 5)
				attend(&r, v(q), v(q), kv, v(elemF32), 100, 5, 4, 2, dim, 0.1, true, true)
				attend(&r, v(q), v(q), kv, view{}, 100, 50, 4, 2, dim, 0.1, false, false)
			}
		}
	}
	return r
}

// Each dispatch binds what its kernel takes, structs of parameters have the
// kernel's size, and no kernel is without a dispatch.
func TestBindingsAreTheKernels(t *testing.T) {
	emulator.Available(t)
	libraries, launched := map[string]*emulator.Library{}, map[string]bool{}
	for _, file := range kernels.Names() {
		source, err := kernels.Source(file)
		if err != nil {
			t.Fatal(err)
		}
		if libraries[file], err = emulator.Compile(source, emulator.Plain); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	for _, d := range everyDispatch() {
		id := d.file + " " + d.kernel
		l := libraries[d.file]
		if l == nil {
			t.Fatalf("no library of %s", id)
		}
		launched[id] = true
		k, err := l.Kernel(d.kernel)
		if err == nil {
			err = checkBindings(d, k.Bindings())
		}
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for file, l := range libraries {
		for _, k := range l.Kernels() {
			if !launched[file+" "+k] {
				t.Errorf("no launcher dispatches %s of %s", k, file)
			}
		}
	}
}

// checkBindings compares a dispatch with what its kernel declares.
func checkBindings(d dispatch, bindings []emulator.Binding) error {
	buffers, threadgroup := map[int]emulator.Binding{}, false
	for _, b := range bindings {
		if b.Kind == emulator.Threadgroup {
			if b.Index != 0 {
				return fmt.Errorf("threadgroup memory at %d, the encoder sets it at 0", b.Index)
			}
			threadgroup = true
			continue
		}
		buffers[b.Index] = b
	}
	if threadgroup != (d.threadgroup > 0) {
		return fmt.Errorf("%d bytes of threadgroup memory, the kernel has a parameter for it: %v", d.threadgroup, threadgroup)
	}
	if len(buffers) != len(d.args) {
		return fmt.Errorf("%d arguments, the kernel has %d", len(d.args), len(buffers))
	}
	for i, a := range d.args {
		b, ok := buffers[i]
		switch {
		case !ok:
			return fmt.Errorf("the kernel has no argument %d", i)
		case (a.params != nil) != (b.Kind == emulator.ConstantReference):
			return fmt.Errorf("argument %d is parameters on one side alone", i)
		case a.params != nil && int(a.size) != b.Size:
			return fmt.Errorf("the parameters take %d bytes, the kernel's %d", a.size, b.Size)
		}
	}
	return nil
}
