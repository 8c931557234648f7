package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// WriteSafetensors writes a safetensors file: metadata by key, then the
// tensors in the order given, without gaps. The same input gives the same
// bytes. The header is padded so that data starts at a multiple of 8; to keep
// every tensor aligned to its elements, give wider dtypes first.
func WriteSafetensors(w io.Writer, metadata map[string]string, tensors []RawTensor) error {
	for _, t := range tensors {
		if want, err := tensorBytes(t.DType, t.Shape); err == nil && uint64(len(t.Data)) != want {
			return fmt.Errorf("tensor %.80q: %d bytes of data: shape %v of %s takes %d", t.Name, len(t.Data), t.Shape, t.DType, want)
		}
	}
	header, err := SafetensorsHeader(metadata, tensors)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("write safetensors header: %w", err)
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("write tensor %.80q: %w", t.Name, err)
		}
	}
	return nil
}

// safetensorsHeader returns the length and the padded header. It does not look
// at the tensors' data.
func SafetensorsHeader(metadata map[string]string, tensors []RawTensor) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteByte('{')
	key := func(name string) error {
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		text, err := json.Marshal(name)
		b.Write(text)
		b.WriteByte(':')
		return err
	}
	if len(metadata) > 0 {
		if err := key(metadataKey); err != nil {
			return nil, err
		}
		text, err := json.Marshal(metadata) // sorts its keys
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	seen := map[string]bool{metadataKey: true}
	at := uint64(0)
	for _, t := range tensors {
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor name %.80q: want each name once, and not %s", t.Name, metadataKey)
		}
		seen[t.Name] = true
		want, err := tensorBytes(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %.80q: %w", t.Name, err)
		}
		if err := key(t.Name); err != nil {
			return nil, err
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		entry, err := json.Marshal(struct {
			DType   string    `json:"dtype"`
			Shape   []int     `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}{t.DType, shape, [2]uint64{at, at + want}})
		if err != nil {
			return nil, err
		}
		b.Write(entry)
		at += want
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > maxSafetensorsHeader {
		return nil, fmt.Errorf("safetensors header of %d bytes: want at most %d", b.Len()-8, maxSafetensorsHeader)
	}
	header := b.Bytes()
	binary.LittleEndian.PutUint64(header, uint64(len(header)-8))
	return header, nil
}
