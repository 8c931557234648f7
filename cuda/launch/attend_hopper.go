package launch

// attendHopperKernel is that of attend_decode_hopper.cu, with its dynamic shared memory:
// queries of 16 KiB, of two warpgroups three stages of keys and two of values of 16 KiB,
// sums of 32, maxima and weights of 2, barriers, and room to begin on 1024 bytes.
func attendHopperKernel() kernel {
	const shared = 16<<10 + 2*5*(16<<10) + 34<<10 + 256 + 1024
	return kernel{"attend_decode_hopper", "attend_decode_hopper", shared}
}

const attendHopperThreads = 384

// hopperDecodes reports whether attend_decode_hopper.cu takes a shape on this device.
func (d *Device) hopperDecodes(a Attention) bool {
	return a.forHopper() && d.flash.decode.look(d, attendHopperKernel())
}

// leastHopperVectors is from how many query vectors a KV head of the longest span on
// attend_decode_hopper.cu takes less time than attend.cu, whose teams have 16 each.
const leastHopperVectors = 32

// decodeSplit is the split of a pass: by attend_decode_hopper.cu, in blocks of as many
// units as a row's parts have, where there are blocks enough for the device, or little
// to do for each. The last part of a row may be a short one.
func (d *Device) decodeSplit(a Attention, longest, spans, chunks int) attendSplit {
	vectors := longest * a.group()
	tiles := a.KVHeads * spans * Ceil(vectors, attendQueries)
	enough := tiles >= d.Info.SMs*3/8 || tiles*Ceil(chunks, attendMostUnits) >= d.Info.SMs*3/4
	if vectors >= leastHopperVectors && enough && d.hopperDecodes(a) {
		return attendSplit{units: attendMostUnits, queries: attendQueries, hopper: true}
	}
	return d.splitOf(a.QHeads, spans, chunks, longest)
}
