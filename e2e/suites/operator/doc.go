// Package operator is a scenario about restoring beside live controllers: an operator that creates
// what it does not find, StatefulSets whose controller does the same, and a proxy between
// restore-runner and the API server that lets both of them finish before every further request of
// the restore. An order of requests that leaves a controller a moment too early loses stored
// objects here every time, not now and then.
package operator
