// Package collect lists what a backup selects and writes it into sealed parts.
//
// It wires the stages, which hand values forward and know nothing of each other: what earlier
// holders recorded (history) and the plan of lists (plan) go into lists (listing), what actions may
// want goes through an item spool into item blocks (itemblock) and through the actions (acting),
// and what was collected decides on volumes (volumes). All of them write through one writer per
// worker (partwriter), which seals a part, uploads it and then records it. A kind or an object that
// fails costs one counted error and nothing else.
package collect
