package driver

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// proc is one function of the driver API.
type proc struct {
	name    string
	address uintptr
}

// api is what this package calls of the driver. Names with _v2 are what the
// C header's macros make of the plain names: the 64-bit forms.
type api struct {
	initialise, version, errorName, errorText proc

	deviceCount, device, deviceName, deviceMemory, deviceAttribute proc

	retain, release, setCurrent, contextSynchronize proc

	memInfo, alloc, free, upload, download                                     proc
	hostAlloc, hostFree, hostRegister, hostUnregister                          proc
	uploadAsync, downloadAsync, copyAsync, zeroAsync                           proc
	libraryLoad, libraryKernel, kernelFunction, libraryUnload, functionSetting proc

	streamCreate, streamDestroy, streamSynchronize, launch   proc
	beginCapture, endCapture                                 proc
	instantiate, graphLaunch, graphDestroy, graphExecDestroy proc
	graphUpload                                              proc
	eventCreate, eventDestroy, eventRecord, eventSynchronize proc
	eventElapsed                                             proc
	launchExtended, graphNodes                               proc // may be absent
	canReach, enablePeer                                     proc // may be absent
	activeClusters, functionGetting                          proc // may be absent
}

// symbols lists the functions; the optional ones stay nil when absent.
func (a *api) symbols() (required, optional map[string]*proc) {
	return map[string]*proc{
			"cuInit":             &a.initialise,
			"cuDriverGetVersion": &a.version,
			"cuGetErrorName":     &a.errorName,
			"cuGetErrorString":   &a.errorText,

			"cuDeviceGetCount":     &a.deviceCount,
			"cuDeviceGet":          &a.device,
			"cuDeviceGetName":      &a.deviceName,
			"cuDeviceTotalMem_v2":  &a.deviceMemory,
			"cuDeviceGetAttribute": &a.deviceAttribute,

			"cuDevicePrimaryCtxRetain":     &a.retain,
			"cuDevicePrimaryCtxRelease_v2": &a.release,
			"cuCtxSetCurrent":              &a.setCurrent,
			"cuCtxSynchronize":             &a.contextSynchronize,

			"cuMemGetInfo_v2":             &a.memInfo,
			"cuMemAlloc_v2":               &a.alloc,
			"cuMemFree_v2":                &a.free,
			"cuMemcpyHtoD_v2":             &a.upload,
			"cuMemcpyDtoH_v2":             &a.download,
			"cuMemHostAlloc":              &a.hostAlloc,
			"cuMemFreeHost":               &a.hostFree,
			"cuMemHostRegister_v2":        &a.hostRegister,
			"cuMemHostUnregister":         &a.hostUnregister,
			"cuMemcpyHtoDAsync_v2":        &a.uploadAsync,
			"cuMemcpyDtoHAsync_v2":        &a.downloadAsync,
			"cuMemcpyDtoDAsync_v2":        &a.copyAsync,
			"cuMemsetD8Async":             &a.zeroAsync,
			"cuLibraryLoadData":           &a.libraryLoad,
			"cuLibraryGetKernel":          &a.libraryKernel,
			"cuKernelGetFunction":         &a.kernelFunction,
			"cuLibraryUnload":             &a.libraryUnload,
			"cuFuncSetAttribute":          &a.functionSetting,
			"cuStreamCreate":              &a.streamCreate,
			"cuStreamDestroy_v2":          &a.streamDestroy,
			"cuStreamSynchronize":         &a.streamSynchronize,
			"cuLaunchKernel":              &a.launch,
			"cuGraphLaunch":               &a.graphLaunch,
			"cuGraphUpload":               &a.graphUpload,
			"cuGraphDestroy":              &a.graphDestroy,
			"cuGraphExecDestroy":          &a.graphExecDestroy,
			"cuEventCreate":               &a.eventCreate,
			"cuEventDestroy_v2":           &a.eventDestroy,
			"cuEventRecord":               &a.eventRecord,
			"cuEventSynchronize":          &a.eventSynchronize,
			"cuEventElapsedTime":          &a.eventElapsed,
			"cuStreamEndCapture":          &a.endCapture,
			"cuStreamBeginCapture_v2":     &a.beginCapture,
			"cuGraphInstantiateWithFlags": &a.instantiate,
		}, map[string]*proc{
			"cuLaunchKernelEx":      &a.launchExtended,
			"cuGraphGetNodes":       &a.graphNodes,
			"cuDeviceCanAccessPeer": &a.canReach,
			"cuCtxEnablePeerAccess": &a.enablePeer,

			"cuOccupancyMaxActiveClusters": &a.activeClusters,
			"cuFuncGetAttribute":           &a.functionGetting,
		}
}

// bind looks the functions up. Its error names the first missing ones.
func (a *api) bind(l *Library) error {
	required, optional := a.symbols()
	var missing []string
	for name, p := range required {
		address, err := l.Symbol(name)
		if err != nil {
			missing = append(missing, name)
		}
		*p = proc{name, address}
	}
	for name, p := range optional {
		address, _ := l.Symbol(name)
		*p = proc{name, address}
	}
	if len(missing) > 0 {
		return missingError(missing)
	}
	return nil
}

// call is Call of a function of the driver, with its status as an error.
//
//go:uintptrescapes
func (a *api) call(p *proc, args ...uintptr) error {
	return a.status(p, Call(p.address, args...))
}

// callBlock is call without allocation; see CallBlock.
func (a *api) callBlock(p *proc, args []uintptr) error {
	if r := CallBlock(p.address, args); r != 0 {
		return a.status(p, r)
	}
	return nil
}

// Error is a status other than success that the driver returned.
type Error struct {
	Call string // the function of the driver API
	Code int    // CUresult
	Name string // CUDA_ERROR_…
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// codes of CUresult that this package tells apart.
const (
	codeOutOfMemory = 2
	codeNoDevice    = 100
	codePeerEnabled = 704
)

func (a *api) status(p *proc, r int32) error {
	if r == 0 {
		return nil
	}
	var name, text *byte
	Call(a.errorName.address, uintptr(uint32(r)), uintptr(unsafe.Pointer(&name)))
	Call(a.errorText.address, uintptr(uint32(r)), uintptr(unsafe.Pointer(&text)))
	e := &Error{Call: p.name, Code: int(r), Name: cString(name), Text: cString(text)}
	if e.Name == "" {
		e.Name, e.Text = "CUDA_ERROR", "unknown to this driver"
	}
	return e
}

// hasCode reports whether err comes from a driver's status.
func hasCode(err error, code int) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// cString copies a C string; nil is empty.
func cString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String(p, n))
}
