// Package restore carries out a plan: definitions first, until the server serves their kinds, then
// namespaces, then everything else as its predecessors are done.
//
// Bodies are read one by one, by range, when their turn comes. A failure costs the object it
// happened to and nothing else; only the end of the context stops a run.
package restore
