// Package plan decides what a restore brings back and in which order: the items of a backup that
// the filters select, their target namespaces, and a graph of what has to wait for what.
//
// A plan is built from the listing of a backup alone, as a stream; it holds some hundred bytes for
// each object and no bodies.
//
// What decides the order of two objects, the first that says something:
//
//  1. the Class, each a pass: definitions, namespaces, all others
//  2. within the last pass its phases (barrier.go): all others, APIServices, what these serve, admission
//  3. edges of the graph (graph.go, rules.go, names.go): volumes, claims, owners, what objects name, pairs of kinds; with the order
//     "stages" also the stage of a kind's role in its namespace (stages.go, role.go). A cycle is broken
//     at its weakest edge.
//  4. of objects that are ready the lower number: Velero's priority of the kind (priority.go), then kind,
//     namespace and name
package plan
