package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxTensorRank bounds a shape's length; published weights have at most 5.
const maxTensorRank = 16

const metadataKey = "__metadata__"

// headerEntry is what a safetensors header says of one tensor.
type headerEntry struct {
	name, dtype string
	shape       []int
	begin, end  uint64
}

// parseHeader reads a header token by token: what it has no use for is
// refused where it starts, so that neither depth nor size of foreign JSON
// costs memory.
func (s *Safetensors) parseHeader(header []byte) ([]headerEntry, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("want a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.UseNumber()
	var entries []headerEntry
	err := readObject(dec, func(name string) error {
		if name == metadataKey {
			s.Metadata = map[string]string{}
			return readObject(dec, func(key string) error {
				value, err := readString(dec)
				s.Metadata[key] = value
				return err
			})
		}
		if err := checkTensorName(name); err != nil {
			return err
		}
		e := headerEntry{name: name}
		if err := e.read(dec); err != nil {
			return fmt.Errorf("tensor %.80q: %w", name, err)
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("want nothing after the JSON object")
	}
	return entries, nil
}

func (e *headerEntry) read(dec *json.Decoder) error {
	var dtype, shape, offsets bool
	err := readObject(dec, func(key string) (err error) {
		switch key {
		case "dtype":
			dtype = true
			e.dtype, err = readString(dec)
		case "shape":
			shape = true
			var dims []uint64
			dims, err = readUints(dec, maxTensorRank)
			e.shape = make([]int, len(dims))
			for i, d := range dims {
				e.shape[i] = int(d)
			}
		case "data_offsets":
			offsets = true
			var pair []uint64
			pair, err = readUints(dec, 2)
			if err == nil && len(pair) != 2 {
				err = fmt.Errorf("found %d numbers, want 2", len(pair))
			}
			if err == nil {
				e.begin, e.end = pair[0], pair[1]
			}
		default:
			return fmt.Errorf("unknown field %.40q: want dtype, shape and data_offsets", key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !dtype || !shape || !offsets {
		return errors.New("want dtype, shape and data_offsets")
	}
	return nil
}

// readObject reads a JSON object and calls value to read each key's value.
// A key that comes twice is an error.
func readObject(dec *json.Decoder, value func(key string) error) error {
	if err := readDelim(dec, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := readString(dec)
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%.80q stands twice", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return jsonError(err)
}

func readDelim(dec *json.Decoder, want json.Delim, what string) error {
	token, err := dec.Token()
	if err != nil {
		return jsonError(err)
	}
	if token != want {
		return fmt.Errorf("found %s, want %s", found(token), what)
	}
	return nil
}

func readString(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", jsonError(err)
	}
	text, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("found %s, want a string", found(token))
	}
	return text, nil
}

// readUints reads a list of at most limit whole numbers below 2⁶³.
func readUints(dec *json.Decoder, limit int) ([]uint64, error) {
	if err := readDelim(dec, '[', "a list"); err != nil {
		return nil, err
	}
	list := []uint64{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		number, _ := token.(json.Number)
		// Parsed as int, so that a shape also fits where int has 32 bits.
		n, err := strconv.ParseUint(string(number), 10, strconv.IntSize-1)
		if err != nil {
			return nil, fmt.Errorf("found %s, want a whole number from 0 that fits %d bits", found(token), strconv.IntSize-1)
		}
		if len(list) == limit {
			return nil, fmt.Errorf("want at most %d numbers", limit)
		}
		list = append(list, n)
	}
	_, err := dec.Token()
	return list, jsonError(err)
}

// jsonError names an early end as such.
func jsonError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
