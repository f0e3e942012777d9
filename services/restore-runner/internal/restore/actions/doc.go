// Package actions has objects pass the RestoreItemActions that match them, and keeps them while they
// wait for what an action asked for. Before each call it makes sure that the restore is still this
// process's: an action may have effects elsewhere, which nothing fences.
package actions
