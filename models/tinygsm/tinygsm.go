// Package tinygsm holds tiny-gsm, the model that runs where no other is
// named: 14.2 M parameters, trained on grade-school word problems. README.md
// beside this file is its model card.
//
// Build with the tag windrow_nomodel to leave its 27 MiB out of the binary.
package tinygsm

// Name is what the program calls this model.
const Name = "tiny-gsm"
