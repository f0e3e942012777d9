// Package flight is what happens to one object on its way into the cluster, actions apart: whether it
// is restored at all, its request, its owners and its outcome, and how many objects are on their way
// at once.
package flight
