package launch

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"

	"windrow/cuda/driver"
)

var kernelExchangePartials = kernel{file: "peers", name: "exchange_partials"}

// PeersVariable turns the exchange by the GPUs' own kernels off: "off".
const PeersVariable = "WINDROW_PEERS"

const (
	// peerFloats is how many floats are exchanged by kernels at most, 64 rows of an 8B
	// model's residual; more go through NCCL, which sends each float once, and no round
	// with it.
	peerFloats = 1 << 18
	// MostPeers is how many GPUs exchange so at most: each writes to each.
	MostPeers = 8
	// exchangeBytes is the size of peers.cu's Exchange.
	exchangeBytes = 40
)

// Peers is one GPU's end of exchanges by kernels that write into each other's memory
// (peers.cu).
type Peers struct {
	boxes, round, exchange driver.Ptr
	stop                   *driver.Pinned
}

// NewPeers makes a mailbox for parts of each of count ranks. The caller holds the
// context.
func (d *Device) NewPeers(count int) (p *Peers, err error) {
	p = &Peers{}
	bytes := 2 * count * peerFloats * 8
	if p.boxes, err = d.Context.Alloc(bytes); err != nil {
		return nil, err
	}
	if p.round, err = d.Context.Alloc(8); err == nil {
		p.exchange, err = d.Context.Alloc(exchangeBytes + 8*count)
	}
	if err == nil {
		p.stop, err = d.Context.HostAlloc(4)
	}
	if err == nil {
		clear(p.stop.Bytes())
		// Round 0 is over: what the mailboxes have is of no round to come.
		err = errors.Join(d.Stream.Zero(p.boxes, bytes), d.Stream.Zero(p.round, 8), d.Stream.Synchronize())
	}
	if err != nil {
		return nil, errors.Join(err, d.ClosePeers(p))
	}
	return p, nil
}

// ConnectPeers tells the device of everybody's mailboxes, its own among them, in the
// order of the ranks, once all have been made.
func (d *Device) ConnectPeers(own *Peers, all []*Peers) error {
	block := make([]byte, exchangeBytes, exchangeBytes+8*len(all))
	binary.LittleEndian.PutUint64(block[0:], uint64(own.exchange)+exchangeBytes)
	binary.LittleEndian.PutUint64(block[8:], uint64(own.round))
	binary.LittleEndian.PutUint64(block[16:], uint64(own.stop.Address()))
	binary.LittleEndian.PutUint32(block[24:], uint32(d.rank.index))
	binary.LittleEndian.PutUint32(block[28:], uint32(len(all)))
	binary.LittleEndian.PutUint32(block[32:], peerFloats)
	for _, p := range all {
		block = binary.LittleEndian.AppendUint64(block, uint64(p.boxes))
	}
	err := d.Context.Upload(own.exchange, block)
	if err == nil {
		d.peers = own
	}
	return err
}

// Stop ends the waiting for others, now and for ever; any thread may call it.
func (p *Peers) Stop() { atomic.StoreUint32((*uint32)(unsafe.Pointer(&p.stop.Bytes()[0])), 1) }

// ClosePeers frees what NewPeers made, once no kernel of any rank uses it.
func (d *Device) ClosePeers(p *Peers) error {
	if d.peers == p {
		d.peers = nil
	}
	errs := []error{d.Context.Free(p.boxes), d.Context.Free(p.round), d.Context.Free(p.exchange)}
	if p.stop != nil {
		errs = append(errs, p.stop.Close())
	}
	return errors.Join(errs...)
}

// exchangesByPeers reports whether parts of n floats go by kernels.
func (d *Device) exchangesByPeers(n int) bool { return d.peers != nil && n <= peerFloats }

// exchangePartials adds the parts of n floats of all GPUs, of which own is this one's,
// to dst, in the order of the ranks. All have to come.
func (d *Device) exchangePartials(dst, own driver.Ptr, n int) {
	blocks := min(Ceil(n, 2*rowThreads), d.Info.SMs) // they wait, so all have to be at work
	d.launch(kernelExchangePartials, dim{x: blocks}, rowThreads, uint64(dst), uint64(own), uint64(d.peers.exchange), uint64(n))
}
