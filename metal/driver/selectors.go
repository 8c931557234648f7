package driver

// selector is the number of a message in selectorNames.
type selector int

const (
	selAlloc selector = iota
	selArchitecture
	selCode
	selCommandBuffer
	selCommit
	selComputeCommandEncoder
	selContents
	selCount
	selDispatch
	selEndEncoding
	selError
	selFunctionNames
	selGPUEndTime
	selGPUStartTime
	selHasUnifiedMemory
	selInit
	selLocalizedDescription
	selMaxBufferLength
	selMaxThreadgroupMemoryLength
	selMaxTotalThreads
	selName
	selNewBuffer
	selNewBufferNoCopy
	selNewCommandQueue
	selNewFunction
	selNewLibrary
	selNewPipeline
	selObjectAtIndex
	selProcessInfo
	selRecommendedMaxWorkingSetSize
	selRelease
	selRespondsToSelector
	selRetain
	selSetBuffer
	selSetBytes
	selSetFastMathEnabled
	selSetLanguageVersion
	selSetMathMode
	selSetPipeline
	selSetThreadgroupMemory
	selStaticThreadgroupMemory
	selStatus
	selStringWithUTF8
	selSupportsFamily
	selSystemVersion
	selThreadExecutionWidth
	selUTF8String
	selWaitUntilCompleted
	selectorCount
)

// selectorNames are all the messages that this package sends. A colon stands
// for an argument.
var selectorNames = [selectorCount]string{
	selAlloc:                        "alloc",
	selArchitecture:                 "architecture",
	selCode:                         "code",
	selCommandBuffer:                "commandBufferWithUnretainedReferences",
	selCommit:                       "commit",
	selComputeCommandEncoder:        "computeCommandEncoder",
	selContents:                     "contents",
	selCount:                        "count",
	selDispatch:                     "dispatchThreadgroups:threadsPerThreadgroup:",
	selEndEncoding:                  "endEncoding",
	selError:                        "error",
	selFunctionNames:                "functionNames",
	selGPUEndTime:                   "GPUEndTime",
	selGPUStartTime:                 "GPUStartTime",
	selHasUnifiedMemory:             "hasUnifiedMemory",
	selInit:                         "init",
	selLocalizedDescription:         "localizedDescription",
	selMaxBufferLength:              "maxBufferLength",
	selMaxThreadgroupMemoryLength:   "maxThreadgroupMemoryLength",
	selMaxTotalThreads:              "maxTotalThreadsPerThreadgroup",
	selName:                         "name",
	selNewBuffer:                    "newBufferWithLength:options:",
	selNewBufferNoCopy:              "newBufferWithBytesNoCopy:length:options:deallocator:",
	selNewCommandQueue:              "newCommandQueue",
	selNewFunction:                  "newFunctionWithName:",
	selNewLibrary:                   "newLibraryWithSource:options:error:",
	selNewPipeline:                  "newComputePipelineStateWithFunction:error:",
	selObjectAtIndex:                "objectAtIndex:",
	selProcessInfo:                  "processInfo",
	selRecommendedMaxWorkingSetSize: "recommendedMaxWorkingSetSize",
	selRelease:                      "release",
	selRespondsToSelector:           "respondsToSelector:",
	selRetain:                       "retain",
	selSetBuffer:                    "setBuffer:offset:atIndex:",
	selSetBytes:                     "setBytes:length:atIndex:",
	selSetFastMathEnabled:           "setFastMathEnabled:",
	selSetLanguageVersion:           "setLanguageVersion:",
	selSetMathMode:                  "setMathMode:",
	selSetPipeline:                  "setComputePipelineState:",
	selSetThreadgroupMemory:         "setThreadgroupMemoryLength:atIndex:",
	selStaticThreadgroupMemory:      "staticThreadgroupMemoryLength",
	selStatus:                       "status",
	selStringWithUTF8:               "stringWithUTF8String:",
	selSupportsFamily:               "supportsFamily:",
	selSystemVersion:                "operatingSystemVersionString",
	selThreadExecutionWidth:         "threadExecutionWidth",
	selUTF8String:                   "UTF8String",
	selWaitUntilCompleted:           "waitUntilCompleted",
}

// class is the number of a class in classNames.
type class int

const (
	classString class = iota
	classCompileOptions
	classProcessInfo
	classCount
)

var classNames = [classCount]string{
	classString:         "NSString",
	classCompileOptions: "MTLCompileOptions",
	classProcessInfo:    "NSProcessInfo",
}
