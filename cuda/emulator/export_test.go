package emulator

// LibraryOf is Library for the *.cu of a folder of the module.
var LibraryOf = libraryOf
