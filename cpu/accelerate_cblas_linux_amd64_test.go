package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ebitengine/purego"

	"windrow/emulation"
)

// cblasSource is cblas_sgemm as cblas.h declares it, for the arguments that
// product passes; others it refuses by writing nothing.
const cblasSource = `
enum order { row = 101 };
enum transpose { none = 111, other = 112 };
void cblas_sgemm(const enum order o, const enum transpose ta, const enum transpose tb,
	const int m, const int n, const int k, const float alpha, const float *a, const int lda,
	const float *b, const int ldb, const float beta, float *c, const int ldc) {
	if (o != row || ta != none || tb != other) return;
	for (int i = 0; i < m; i++)
		for (int j = 0; j < n; j++) {
			float sum = 0;
			for (int l = 0; l < k; l++) sum += a[i * lda + l] * b[j * ldb + l];
			c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]);
		}
}`

// TestAccelerateBinding calls a C function of cblas_sgemm's type: the integers,
// floats and pointers arrive where they should.
func TestAccelerateBinding(t *testing.T) {
	emulation.Available(t, "a cblas_sgemm")
	source, library := filepath.Join(t.TempDir(), "cblas.c"), filepath.Join(t.TempDir(), "libcblas.so")
	if err := os.WriteFile(source, []byte(cblasSource), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(emulation.Compiler, "-O1", "-shared", "-fPIC", "-nostdlib", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	address, err := purego.Dlsym(handle, "cblas_sgemm")
	if err != nil {
		t.Fatal(err)
	}
	var f cblasSgemm
	purego.RegisterFunc(&f, address)
	if !agrees(f.product) {
		t.Error("wrong products")
	}
	defer func() {
		if recover() == nil {
			t.Error("a slice that is too short went to C")
		}
	}()
	f.product(2, 2, 2, make([]float32, 4), 2, make([]float32, 4), 2, make([]float32, 4), 3)
}
