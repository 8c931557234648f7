package fetch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A journal says what of a part file is there: a header, then records of one size, each
// with a CRC-32C, which are appended. A record that was torn, and what follows it, counts
// for nothing. All numbers are little-endian.
//
//	header  magic [8]  key [32]  size u64  piece size u64  boot [16]  crc u32
//	record  kind u8  state length u8  peer u16  piece u32  count u64  crc of the bytes u32  state [108]  crc u32
//
// A record of a piece has the bytes that are there from its beginning on, and their
// CRC-32C; peer is 1 where a peer gave some of them. A record of the front has how many bytes of the file were hashed, from its
// beginning on, and the hash's state.
const (
	journalMagic = "WRWPART1"
	headerSize   = 8 + 32 + 8 + 8 + 16 + 4
	stateSize    = 108 // SHA-256's; SHA-1's has 96
	recordSize   = 1 + 1 + 2 + 4 + 8 + 4 + stateSize + 4

	recordPiece = 1
	recordFront = 2
)

// maxJournal bounds what is read: a record a second of eight pieces for a month.
const maxJournal = 3 << 30

// maxPieces bounds the pieces of a file: 16 TiB of 16 MiB.
const maxPieces = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journalHeader says whose part it is.
type journalHeader struct {
	key       [32]byte // of the file: its hash, or what stands for one
	size      int64    // the file's, in bytes
	pieceSize int64
	boot      [16]byte // names the time since the system started; 0: not known
}

func (h journalHeader) bytes() []byte {
	b := append(make([]byte, 0, headerSize), journalMagic...)
	b = append(b, h.key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.pieceSize))
	b = append(b, h.boot[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// pieces is how many pieces the file has.
func (h journalHeader) pieces() int { return int((h.size + h.pieceSize - 1) / h.pieceSize) }

// length is the size of a piece: the last one is shorter.
func (h journalHeader) length(piece int) int64 {
	return min(h.pieceSize, h.size-int64(piece)*h.pieceSize)
}

// noted is what a journal says of a piece.
type noted struct {
	have int64
	crc  uint32
	peer bool // a peer gave some of it
}

// journal is what was read of one.
type journal struct {
	journalHeader
	noted []noted // by piece
	front int64   // bytes that state is of
	state []byte
}

// pieceRecord and frontRecord append a record.
func pieceRecord(b []byte, piece int, n noted) []byte {
	return appendRecord(b, recordPiece, piece, n, nil)
}

func frontRecord(b []byte, front int64, state []byte) []byte {
	return appendRecord(b, recordFront, 0, noted{have: front}, state)
}

func appendRecord(b []byte, kind byte, piece int, n noted, state []byte) []byte {
	at := len(b)
	peer := byte(0)
	if n.peer {
		peer = 1
	}
	b = append(b, kind, byte(len(state)), peer, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(piece))
	b = binary.LittleEndian.AppendUint64(b, uint64(n.have))
	b = binary.LittleEndian.AppendUint32(b, n.crc)
	b = append(b, state...)
	b = append(b, make([]byte, stateSize-len(state))...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// readHeader reads the beginning of a journal.
func readHeader(data []byte) (h journalHeader, err error) {
	if len(data) < headerSize || string(data[:8]) != journalMagic {
		return h, fmt.Errorf("is no journal of this version")
	}
	if crc32.Checksum(data[:headerSize-4], castagnoli) != binary.LittleEndian.Uint32(data[headerSize-4:]) {
		return h, fmt.Errorf("the journal's header is damaged")
	}
	copy(h.key[:], data[8:])
	size, pieceSize := binary.LittleEndian.Uint64(data[40:]), binary.LittleEndian.Uint64(data[48:])
	copy(h.boot[:], data[56:])
	if size > 1<<60 || pieceSize < 1 || pieceSize > 1<<40 || size/pieceSize >= maxPieces {
		return h, fmt.Errorf("the journal is of %d bytes in pieces of %d", size, pieceSize)
	}
	h.size, h.pieceSize = int64(size), int64(pieceSize)
	return h, nil
}

// readJournal reads a journal as far as it is whole.
func readJournal(data []byte) (*journal, error) {
	h, err := readHeader(data)
	if err != nil {
		return nil, err
	}
	j := &journal{journalHeader: h, noted: make([]noted, h.pieces())}
	for data = data[headerSize:]; len(data) >= recordSize; data = data[recordSize:] {
		r := data[:recordSize]
		if crc32.Checksum(r[:recordSize-4], castagnoli) != binary.LittleEndian.Uint32(r[recordSize-4:]) {
			break
		}
		piece, count, n := binary.LittleEndian.Uint32(r[4:]), binary.LittleEndian.Uint64(r[8:]), int(r[1])
		switch {
		case r[0] == recordPiece && int64(piece) < int64(len(j.noted)) && count <= uint64(j.length(int(piece))):
			j.noted[piece] = noted{int64(count), binary.LittleEndian.Uint32(r[16:]), r[2]&1 != 0}
		case r[0] == recordFront && count <= uint64(j.size) && n <= stateSize:
			j.front, j.state = int64(count), bytes.Clone(r[20:20+n])
		default:
			return j, nil // written by something else
		}
	}
	return j, nil
}

// have is how many bytes of the file the journal has.
func (j *journal) have() (n int64) {
	for _, p := range j.noted {
		n += p.have
	}
	return n
}
