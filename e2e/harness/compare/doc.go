// Package compare reads live objects into a snapshot and compares two snapshots object by object,
// field by field.
//
// It shares no code with the product, so it can judge it. What it ignores is the fixed list
// Ignored, printed by the program that uses it; what controllers make under new names every time is
// left out, and counted.
package compare
