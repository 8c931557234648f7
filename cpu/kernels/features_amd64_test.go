package kernels

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// needs skips a test of a routine on processors that cannot run it.
func needs(t *testing.T, s featureSet) {
	t.Helper()
	if lacking := s.lacking(); lacking != "" {
		t.Skipf("needs %v; this processor lacks %s", s, lacking)
	}
}

// The machine's list has the features of every table and routine, by name, once.
func TestMachineFeatures(t *testing.T) {
	for _, s := range []featureSet{featuresAVX2, featuresAVXVNNI, featuresAVX512, featuresAVX512BF16, featuresVNNI, featuresVBMI, featuresAMX, featuresAMXInt8} {
		for _, f := range s {
			if !allFeatures.holds(f) {
				t.Errorf("%v is asked for and not listed", f)
			}
		}
	}
	var names []string
	for _, f := range MachineFeatures() {
		names = append(names, f.Name)
	}
	want := strings.Fields("avx2 fma f16c bmi2 avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni avx512vbmi avx512_bf16 amx_tile amx_bf16 amx_int8")
	if !slices.Equal(names, want) || len(linuxNames) != len(want) {
		t.Errorf("the features are %q, want %q", names, want)
	}
}

// assemblyFeatures is what is asked for before a routine of a file is called.
// TestAssemblyFeatures fails for a file that is not here.
var assemblyFeatures = map[string]featureSet{
	"attend_amx_amd64.s":             featuresAMX,
	"attend_avx2_amd64.s":            featuresAVX2,
	"attend_avx512_amd64.s":          featuresAVX512,
	"delta_avx2_amd64.s":             featuresAVX2,
	"delta_avx512_amd64.s":           featuresAVX512,
	"delta_rows_avx2_amd64.s":        featuresAVX2,
	"delta_rows_avx512_amd64.s":      featuresAVX512,
	"float8_avx2_amd64.s":            featuresAVX2,
	"narrow_avx512_amd64.s":          featuresAVX512,
	"pause_amd64.s":                  nil,
	"prefetch_amd64.s":               nil,
	"project_amx_amd64.s":            featuresAMX,
	"project_avx2_amd64.s":           featuresAVX2,
	"project_avx512_amd64.s":         featuresAVX512,
	"project_avx512bf16_amd64.s":     featuresAVX512BF16,
	"project_many_amx_amd64.s":       featuresAMX,
	"quant_alone_avx512_amd64.s":     featuresVBMI,
	"quant_amx_amd64.s":              featuresAMXInt8,
	"quant_alone_avx2_amd64.s":       featuresAVX2,
	"quant_dots_avx2_amd64.s":        featuresAVX2,
	"quant_dots_avx512_amd64.s":      featuresVNNI,
	"quant_dots_half_avx512_amd64.s": featuresVNNI,
	"quant_dots_avxvnni_amd64.s":     featuresAVXVNNI,
	"quant_many_amx_amd64.s":         featuresAMXInt8,
	"quant_pack_amx_amd64.s":         featuresAMXInt8,
	"quant_pack_avx2_amd64.s":        featuresAVX2,
	"quant_pack_avx512_amd64.s":      featuresVBMI,
	"quant_row_avx2_amd64.s":         featuresAVX2,
	"quant_row_avx512_amd64.s":       featuresAVX512,
	"read_amd64.s":                   nil,
	"vector_avx2_amd64.s":            featuresAVX2,
	"vector_avx512_amd64.s":          featuresAVX512,
}

// routineFeatures are routines that others than their file's table call, or
// that ask by themselves.
var routineFeatures = map[string]featureSet{
	"readLines64":  {cpuid.AVX512F}, // readLines
	"widenScales":  featuresAVX512,  // TestWidenScales
	"packBF16":     featuresAVX512BF16,
	"quantizeRow":  featuresVBMI,
	"permuteBytes": featuresVBMI,
}

// TestAssemblyFeatures reads the instructions of every routine, as the
// assembler expands them, and compares what they take of a processor with what
// is asked for before the routine runs: a guard that asks for too little kills
// the process on machines that the tests may never see.
func TestAssemblyFeatures(t *testing.T) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command: it expands the assembly")
	}
	files, err := filepath.Glob("*_amd64.s")
	if err != nil || len(files) == 0 {
		t.Skip("needs the package's sources")
	}
	include := includeFolder(t)
	root, err := exec.Command(goCommand, "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	textflag := filepath.Join(strings.TrimSpace(string(root)), "pkg", "include")
	found := map[string]bool{}
	for _, file := range files {
		allowed, ok := assemblyFeatures[file]
		if !ok {
			t.Errorf("%s: say in assemblyFeatures what is asked for before it runs", file)
		}
		found[file] = true
		out, err := exec.Command(goCommand, "tool", "asm", "-S", "-p", "kernels", "-I", include, "-I", textflag, "-I", ".",
			"-o", filepath.Join(t.TempDir(), "o"), file).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %.300s", file, err, out)
		}
		for _, r := range routinesOf(string(out)) {
			guard := allowed
			if special, ok := routineFeatures[r.name]; ok {
				guard = special
			}
			for _, line := range r.lines {
				for _, f := range instructionFeatures(t, line) {
					if !guard.implies(f) {
						t.Errorf("%s: %s runs %q, which takes %v; before it these are asked for: %v", file, r.name, line, f, guard)
					}
				}
			}
		}
	}
	for file := range assemblyFeatures {
		if !found[file] {
			t.Errorf("assemblyFeatures has %s, which is no file", file)
		}
	}
}

// The name of a file has the best instruction set of which it asks for all.
func TestAssemblyNames(t *testing.T) {
	sets := map[string]featureSet{"avx2": featuresAVX2, "avxvnni": featuresAVXVNNI, "avx512": featuresAVX512, "avx512bf16": featuresAVX512BF16, "amx": featuresAMX}
	for file, asked := range assemblyFeatures {
		want := ""
		for _, isa := range instructionSets["amd64"] {
			if !slices.ContainsFunc(sets[isa], func(f cpuid.FeatureID) bool { return !asked.holds(f) }) {
				want = isa
			}
		}
		if n, err := nameOf(file); err != nil || n.isa != want {
			t.Errorf("%s asks for %v: its instruction set is %q, want %q (%v)", file, asked, n.isa, want, err)
		}
	}
}

// implies reports whether a processor with all of s has f.
func (s featureSet) implies(f cpuid.FeatureID) bool {
	if s.holds(f) {
		return true
	}
	switch f {
	case cpuid.AVX:
		return s.holds(cpuid.AVX2) || s.holds(cpuid.AVX512F)
	case cpuid.AVX2, cpuid.FMA3, cpuid.F16C:
		return s.holds(cpuid.AVX512F) // no processor has it without them
	}
	return false
}

// The reading of instructions is tested by itself: what each form takes.
func TestInstructionFeatures(t *testing.T) {
	for line, want := range map[string]featureSet{
		"ADDQ $8, AX":              nil,
		"PREFETCHT0 (AX)":          nil,
		"BZHIL CX, AX, BX":         {cpuid.BMI2},
		"VADDPS X0, X1, X2":        {cpuid.AVX},
		"VADDPS Y0, Y1, Y2":        {cpuid.AVX},
		"VADDPS Z0, Z1, Z2":        {cpuid.AVX512F},
		"VADDPS Y0, Y1, Y17":       {cpuid.AVX512F, cpuid.AVX512VL},
		"VADDPS.BCST (AX), Y1, Y2": {cpuid.AVX512F, cpuid.AVX512VL},
		"VXORPS Z0, Z1, Z2":        {cpuid.AVX512F, cpuid.AVX512DQ},
		"VPAND Y0, Y1, Y2":         {cpuid.AVX2},
		"VPAND X0, X1, X2":         {cpuid.AVX},
		"VPADDW Y0, Y1, Y2":        {cpuid.AVX2},
		"VPADDW Z0, Z1, Z2":        {cpuid.AVX512F, cpuid.AVX512BW},
		"VBROADCASTSS (AX), Y1":    {cpuid.AVX},
		"VBROADCASTSS X0, Y1":      {cpuid.AVX2},
		"VFMADD231PS Y0, Y1, Y2":   {cpuid.FMA3},
		"VFMADD231PS Z0, Z1, Z2":   {cpuid.AVX512F},
		"VCVTPH2PS (AX), Y1":       {cpuid.F16C},
		"VMOVDQU8.Z (AX), K1, Z1":  {cpuid.AVX512F, cpuid.AVX512BW},
		"VPMOVDW Z1, Y2":           {cpuid.AVX512F},
		"VPDPBUSD Z0, Z1, Z2":      {cpuid.AVX512VNNI, cpuid.AVX512F},
		"VPERMI2B Z0, Z1, Z2":      {cpuid.AVX512VBMI, cpuid.AVX512F},
		"VMOVSS (AX), X20":         {cpuid.AVX512F},
		"KMOVW AX, K1":             {cpuid.AVX512F},
		"KMOVD AX, K1":             {cpuid.AVX512F, cpuid.AVX512BW},
		"KTESTW K1, K1":            {cpuid.AVX512F, cpuid.AVX512DQ},
		"BYTE c4 e2 78 49 00":      {cpuid.AMXTILE},                   // LDTILECFG (AX)
		"BYTE c4 e2 6a 5c c1":      {cpuid.AMXTILE, cpuid.AMXBF16},    // TDPBF16PS
		"BYTE c4 e2 6b 5e c1":      {cpuid.AMXTILE, cpuid.AMXINT8},    // TDPBSSD
		"BYTE c4 e2 75 50 c2":      {cpuid.AVXVNNI},                   // VPDPBUSD, VEX
		"BYTE 62 f2 76 48 52 c2":   {cpuid.AVX512F, cpuid.AVX512BF16}, // VDPBF16PS Z
		"BYTE 62 f2 76 28 52 c2":   {cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512BF16},
	} {
		if got := instructionFeatures(t, line); !slices.Equal(got, want) {
			t.Errorf("%q takes %v, want %v", line, got, want)
		}
	}
	const listing = "cpu.f STEXT nosplit\n\t0x0000 00000 (f.s:1)\tTEXT\tcpu.f(SB), NOSPLIT, $0\n" +
		"\t0x0001 00001 (f.s:2)\tBYTE\t$196\n\t0x0002 00002 (f.s:2)\tBYTE\t$226\n\t0x0003 00003 (f.s:2)\tBYTE\t$123\n\t0x0004 00004 (f.s:2)\tBYTE\t$73\n" +
		"\t0x0005 00005 (f.s:2)\tBYTE\t$192\n\t0x0006 00006 (f.s:3)\tBYTE\t$98\n\t0x0007 00007 (f.s:4)\tVADDPS\tZ1, Z2, Z3\n"
	got := routinesOf(listing)
	want := []string{"TEXT cpu.f(SB), NOSPLIT, $0", "BYTE c4 e2 7b 49 c0", "BYTE 62", "VADDPS Z1, Z2, Z3"}
	if len(got) != 1 || got[0].name != "f" || !slices.Equal(got[0].lines, want) {
		t.Errorf("the listing was read as %q", got)
	}
}

type routine struct {
	name  string
	lines []string // "VADDPS Z0, Z1, Z2"; instructions given as bytes: "BYTE c4 e2 …"
}

var (
	listingName = regexp.MustCompile(`(?m)^(?:\S*\.)?(\w+) STEXT`)
	listingLine = regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \([^)]*\)\t(\S+)(?:\t(.*))?$`)
)

// routinesOf cuts an assembler's listing.
func routinesOf(listing string) (all []routine) {
	for line := range strings.Lines(listing) {
		line = strings.TrimSuffix(line, "\n")
		if m := listingName.FindStringSubmatch(line); m != nil {
			all = append(all, routine{name: m[1]})
			continue
		}
		m := listingLine.FindStringSubmatch(line)
		if m == nil || len(all) == 0 {
			continue
		}
		r := &all[len(all)-1]
		if m[1] != "BYTE" {
			r.lines = append(r.lines, m[1]+" "+m[2])
			continue
		}
		value, _ := strconv.Atoi(strings.TrimPrefix(m[2], "$"))
		text := fmt.Sprintf(" %02x", byte(value))
		if n := len(r.lines); n > 0 && strings.HasPrefix(r.lines[n-1], "BYTE") && !wholeInstruction(r.lines[n-1]) {
			r.lines[n-1] += text
		} else {
			r.lines = append(r.lines, "BYTE"+text)
		}
	}
	return all
}

// wholeInstruction reports whether bytes hold what tells a VEX or EVEX
// instruction's features and its operands: prefix, opcode, ModRM, and the SIB
// and displacement bytes that ModRM asks for.
func wholeInstruction(line string) bool {
	b := bytesOfLine(line)
	opcode := map[byte]int{0xc5: 2, 0xc4: 3, 0x62: 4}[b[0]]
	if len(b) < opcode+2 {
		return false
	}
	modrm, n := b[opcode+1], opcode+2
	if modrm>>6 != 3 && modrm&7 == 4 {
		n++
	}
	switch {
	case modrm>>6 == 1:
		n++
	case modrm>>6 == 2, modrm>>6 == 0 && modrm&7 == 5:
		n += 4
	}
	return len(b) >= n
}

func bytesOfLine(line string) (b []byte) {
	for _, h := range strings.Fields(line)[1:] {
		v, _ := strconv.ParseUint(h, 16, 8)
		b = append(b, byte(v))
	}
	return b
}

var (
	wideRegister   = regexp.MustCompile(`\bZ\d+\b`)
	middleRegister = regexp.MustCompile(`\bY\d+\b`)
	highRegister   = regexp.MustCompile(`\b[XY](1[6-9]|2\d|3[01])\b`)
	maskRegister   = regexp.MustCompile(`\bK[0-7]\b`)

	// Instructions of AVX512BW and DQ with registers of 512 bits, or with masks.
	bwInstruction = regexp.MustCompile(`^(VMOVDQU(8|16)|VPERM(I2|T2)?W|VPS(LL|RL|RA)V?W|VP(ADD|SUB)U?S?[BW]|VPMADD(WD|UBSW)|VPMUL[HL]\w*W|VPACK[SU]S(DW|WB)|VPUNPCK[HL](BW|WD)|` +
		`VPBROADCAST[BW]|VPSHUFB|VPSHUF[HL]W|VPMOV[SZ]XBW|VPMOVU?S?WB|VP(MAX|MIN)[SU][BW]|VPABS[BW]|VPCMPU?[BW]|VPALIGNR|VPTESTN?M[BW]|VPBLENDM[BW]|VPEXTR[BW]|VPINSR[BW]|KMOV[DQ]|K(OR|XNOR|XOR|AND|ANDN|NOT|ADD|ORTEST|TEST)[DQ]|KUNPCK(WD|DQ))$`)
	dqInstruction  = regexp.MustCompile(`^(V(AND|ANDN|OR|XOR)P[SD]|V(EXTRACT|INSERT)[FI](32X8|64X2)|VBROADCAST[FI](32X2|32X8|64X2)|VPMULLQ|VCVT\w*QQ\w*|VRANGE\w+|VREDUCE\w+|VFPCLASS\w+|KMOVB|K\w+B|KTESTW|KADDW)$`)
	fmaInstruction = regexp.MustCompile(`^VFN?M(ADD|SUB)\w+$`)
	avx2Only       = regexp.MustCompile(`^(VPBROADCAST[BWDQ]|VEXTRACTI128|VINSERTI128|VPERM(Q|D|PS|PD|2I128)|VPGATHER\w+|VGATHER\w+|VPS[LR]LV[DQ]|VPSRAVD|VPBLENDD|VPMASKMOV[DQ])$`)
	bmiInstruction = map[string]cpuid.FeatureID{"BZHIL": cpuid.BMI2, "BZHIQ": cpuid.BMI2, "SHLXQ": cpuid.BMI2, "SHRXQ": cpuid.BMI2, "SHLXL": cpuid.BMI2, "SHRXL": cpuid.BMI2,
		"RORXQ": cpuid.BMI2, "MULXQ": cpuid.BMI2, "PDEPQ": cpuid.BMI2, "PEXTQ": cpuid.BMI2, "ANDNQ": cpuid.BMI1, "ANDNL": cpuid.BMI1, "BLSRQ": cpuid.BMI1, "TZCNTQ": cpuid.BMI1,
		"TZCNTL": cpuid.BMI1, "LZCNTQ": cpuid.LZCNT, "POPCNTQ": cpuid.POPCNT}
	baseline = regexp.MustCompile(`^(ADD|SUB|AND|OR|XOR|CMP|TEST|MOV|MOVABS|INC|DEC|NEG|NOT|SHL|SHR|SAR|IMUL|BSF|LEA|PUSH|POP|CMOV)[BWLQ]?[A-Z]*$|^(MOV[BWL][LQ](SX|ZX)|MOVO[UA]|PREFETCH(T0|T1|T2|NTA)|` +
		`J[A-Z]+|CALL|RET|TEXT|FUNCDATA|PCDATA|NOP|PAUSE|XCHGL)$`)
)

// instructionFeatures is what one instruction takes of a processor beyond
// SSE2. Instructions that it does not know fail the test.
func instructionFeatures(t *testing.T, line string) featureSet {
	name, operands, _ := strings.Cut(line, " ")
	if name == "BYTE" {
		return encodedFeatures(t, line)
	}
	name, suffix, masked := strings.Cut(name, ".")
	wide := wideRegister.MatchString(operands)
	evex := wide || masked || suffix != "" || maskRegister.MatchString(operands) || highRegister.MatchString(operands)
	var s featureSet
	switch {
	case baseline.MatchString(name):
		return nil
	case bmiInstruction[name] != 0:
		return featureSet{bmiInstruction[name]}
	case name == "VPDPBUSD" || name == "VPDPBUSDS" || name == "VPDPWSSD":
		evex, s = true, s.and(cpuid.AVX512VNNI) // Go's assembler writes the EVEX form
	case name == "VPERMB" || name == "VPERMI2B" || name == "VPERMT2B" || name == "VPMULTISHIFTQB":
		evex, s = true, s.and(cpuid.AVX512VBMI)
	case regexp.MustCompile(`^(VPTERNLOG[DQ]|VMOVDQ[UA](8|16|32|64)|VPMOVU?S?[DQ][BWD]|VEXTRACT[FI](32X4|64X4|64X2|32X8)|VINSERT[FI](32X4|64X4|64X2|32X8)|VBROADCAST[FI](32X2|32X4|32X8|64X2|64X4)|VSHUF[FI](32X4|64X2)|` +
		`VP(AND|ANDN|OR|XOR)[DQ]|VRNDSCALE\w+|VSCALEF\w+|VPERMW|VPS[LR]LVW|VPSRAVW)$`).MatchString(name):
		evex = true // no other form
	case !strings.HasPrefix(name, "V") && !strings.HasPrefix(name, "K"):
		t.Errorf("%q: an instruction that this test does not know; say what it takes", line)
		return nil
	}
	if strings.HasPrefix(name, "K") {
		evex = true
	}
	if !evex {
		switch {
		case fmaInstruction.MatchString(name):
			return s.and(cpuid.FMA3)
		case name == "VCVTPH2PS" || name == "VCVTPS2PH":
			return s.and(cpuid.F16C)
		case avx2Only.MatchString(name), name == "VBROADCASTSS" && !strings.Contains(operands, "("):
			return s.and(cpuid.AVX2)
		case strings.HasPrefix(name, "VP") && name != "VPERMILPS" && name != "VPERM2F128" && middleRegister.MatchString(operands):
			return s.and(cpuid.AVX2)
		}
		return s.and(cpuid.AVX)
	}
	s = s.and(cpuid.AVX512F)
	if !wide && !strings.HasPrefix(name, "K") && (middleRegister.MatchString(operands) || !scalar(name)) {
		s = s.and(cpuid.AVX512VL)
	}
	if bwInstruction.MatchString(name) {
		s = s.and(cpuid.AVX512BW)
	}
	if dqInstruction.MatchString(name) {
		s = s.and(cpuid.AVX512DQ)
	}
	return s
}

// scalar reports whether an instruction works on one element, which has an
// EVEX form without VL.
func scalar(name string) bool { return strings.HasSuffix(name, "SS") || strings.HasSuffix(name, "SD") }

// encodedFeatures is the same of an instruction that Go's assembler does not
// know, given as bytes.
func encodedFeatures(t *testing.T, line string) featureSet {
	b := bytesOfLine(line)
	if len(b) > 3 && b[0] == 0xc4 { // VEX: three bytes of prefix, opcode
		switch m, op := b[1]&31, b[3]; {
		case m == 2 && (op == 0x49 || op == 0x4b): // LDTILECFG, TILERELEASE, TILEZERO; TILELOADD, TILESTORED
			return featureSet{cpuid.AMXTILE}
		case m == 2 && op == 0x5c && b[2]&3 == 2: // TDPBF16PS
			return featureSet{cpuid.AMXTILE, cpuid.AMXBF16}
		case m == 2 && op == 0x5e: // TDPBSSD and its kin
			return featureSet{cpuid.AMXTILE, cpuid.AMXINT8}
		case m == 2 && op == 0x50 && b[2]&3 == 1: // VPDPBUSD
			return featureSet{cpuid.AVXVNNI}
		}
	}
	if len(b) > 4 && b[0] == 0x62 { // EVEX: four
		s := featureSet{cpuid.AVX512F}
		if b[3]>>5&3 != 2 {
			s = s.and(cpuid.AVX512VL)
		}
		switch m, op, pp := b[1]&7, b[4], b[2]&3; {
		case m == 2 && (op == 0x52 || op == 0x72) && pp == 2: // VDPBF16PS, VCVTNEPS2BF16
			return s.and(cpuid.AVX512BF16)
		case m == 2 && op == 0x72 && pp == 3: // VCVTNE2PS2BF16
			return s.and(cpuid.AVX512BF16)
		}
	}
	t.Errorf("%q: an encoding that this test does not know; say what it takes", line)
	return nil
}

// includeFolder holds a go_asm.h with the offsets that the sources name; which
// values they have does not matter here.
func includeFolder(t *testing.T) string {
	names := map[string]bool{}
	files, err := filepath.Glob("*_amd64.[sh]")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b[a-z]\w*_\w+\b`).FindAllString(string(text), -1) {
			names[name] = true
		}
	}
	var header strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&header, "#define %s 8\n", name)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go_asm.h"), []byte(header.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}
