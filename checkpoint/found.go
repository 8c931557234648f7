package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// What a model file holds goes into errors, and so to a terminal: quoted, and
// no more of it than tells what it is.

// found describes a value of JSON or of GGUF's metadata.
func found(value any) string {
	text := fmt.Sprint(value)
	if _, ok := value.(string); ok || len(text) > 40 || checkTensorName(text) != nil {
		return fmt.Sprintf("%.40q", text)
	}
	return text
}

// excerpt shortens JSON for an error's one line.
func excerpt(raw []byte) string {
	text := strings.Join(strings.Fields(string(raw[:min(len(raw), 200)])), " ")
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "") + "…"
	}
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// maxTensorName bounds a tensor's name; published ones have some 60 bytes.
const maxTensorName = 256

// checkTensorName accepts a name that can be printed: it stands in errors, in
// tables and in the files that are made of it.
func checkTensorName(name string) error {
	if len(name) > maxTensorName || strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return fmt.Errorf("tensor name %.80q: want at most %d printable characters", name, maxTensorName)
	}
	return nil
}
