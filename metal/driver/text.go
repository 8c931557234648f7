package driver

import (
	"fmt"
	"strings"
	"unsafe"
)

// string makes an autoreleased NSString.
func (r *Runtime) string(s string) uintptr {
	b := append([]byte(s), 0)
	return r.send(r.classes[classString], selStringWithUTF8, uintptr(unsafe.Pointer(&b[0])))
}

// text copies an NSString, or returns "" for nil.
func (r *Runtime) text(id uintptr) string {
	if id == 0 {
		return ""
	}
	p := pointer(r.send(id, selUTF8String))
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// failure makes an error of an NSError: one line, with its code.
func (r *Runtime) failure(what string, id uintptr) error {
	if id == 0 {
		return fmt.Errorf("metal: %s failed, and Metal does not say why", what)
	}
	text := strings.Join(strings.Fields(r.text(r.send(id, selLocalizedDescription))), " ")
	return fmt.Errorf("metal: %s: %s (code %d)", what, text, int(r.send(id, selCode)))
}
