package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"windrow/cuda/emulator"
)

// TestDoctorScripts runs doctor on the emulated driver.
func TestDoctorScripts(t *testing.T) {
	library := emulator.Library(t, false)
	golden, err := filepath.Abs(filepath.Join("..", "..", "model", "testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "doctor"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    checkCode,
			"oneline": checkOneLine,
			"jsonhas": checkJSON,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("DRIVER", library)
			e.Setenv("GOLDEN", golden)
			e.Setenv("WINDROW_CUBLASLT", "off")
			e.Setenv("WINDROW_EMULATED_MEMORY", "268435456")
			return nil
		},
	})
}
