package metal

import "windrow/backend"

// CompileSources compiles the sources that forwards with weights of these types need,
// with mixtures of experts and gated DeltaNet where the model has them,
// which otherwise happens in the first forward: a caller that has another
// backend can then still take that.
func (b *Backend) CompileSources(types []backend.DType, experts, delta bool) error {
	m, ok := b.memory.(gpuMemory)
	if !ok {
		return nil
	}
	files := []string{"embed", "rows", "rotate", "attend", "attend_prefill", "results"}
	for _, dt := range types {
		files = append(files, "project_"+dt.String())
		if experts {
			files = append(files, "experts_"+dt.String())
		}
	}
	if experts {
		files = append(files, "mixture")
	}
	if delta {
		files = append(files, "delta")
	}
	var err error
	closed := m.gpu.do(func() {
		for _, file := range files {
			if _, err = m.gpu.device.library(file); err != nil {
				return
			}
		}
	})
	if closed != nil {
		return closed
	}
	return err
}
