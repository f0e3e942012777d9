// Package actions has objects pass the RestoreItemActions that match them, and keeps them while they
// wait for what an action asked for.
package actions
