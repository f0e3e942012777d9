// Package validate decides whether a Backup or Restore can be run as it is asked for, and fills in
// what Velero's server would: defaults and computed fields (Velero 1.18). What is asked for and not
// built is refused by name, never ignored.
package validate
