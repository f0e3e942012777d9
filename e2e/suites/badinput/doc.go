// Package badinput gives a running Holdfast what it should not be given: requests that contradict
// themselves or ask for what is not built, locations that cannot be used, clusters that do not
// answer. Each has to end in the phase the reference names,
// with one message that names the field or object, and without harm to anything else.
package badinput
