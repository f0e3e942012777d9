// Package collect lists what a backup selects and writes it into sealed parts.
//
// The work is cut into units, one per kind and namespace. Workers take units
// from a queue; each streams the pages of a unit into the part it is writing and
// seals the part at the end of a verified page once it is big enough. A sealed
// part is uploaded, then recorded by a checkpoint. A kind or an object that
// fails costs one counted error and nothing else.
package collect
