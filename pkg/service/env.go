package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every variable that sets a flag: --log-level is
// HOLDFAST_LOG_LEVEL.
const EnvPrefix = "HOLDFAST_"

// EnvName is the variable that sets a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ApplyEnv sets the flags of fs that the command line left alone from environ ("NAME=value" each,
// as os.Environ gives it). It is called after fs was parsed. Every HOLDFAST_ variable without a
// flag is an error that names it, except those Kubernetes sets for Services whose names begin with
// "holdfast-".
func ApplyEnv(fs *pflag.FlagSet, environ []string) error {
	vars := holdfastVars(environ)
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name == "version" || f.Name == "help" {
			return // actions, not settings
		}
		name := EnvName(f.Name)
		value, set := vars[name]
		delete(vars, name)
		if !set || f.Changed {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	for _, name := range unknownVars(vars) {
		errs = append(errs, fmt.Errorf("%s: unknown variable", name))
	}
	return errors.Join(errs...)
}

func holdfastVars(environ []string) map[string]string {
	vars := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			vars[name] = value
		}
	}
	return vars
}

// unknownVars leaves out Kubernetes' service links: where NAME_SERVICE_HOST is set, all of
// NAME_SERVICE_* and NAME_PORT*.
func unknownVars(vars map[string]string) []string {
	var linked []string
	for name := range vars {
		if service, ok := strings.CutSuffix(name, "_SERVICE_HOST"); ok {
			linked = append(linked, service)
		}
	}
	var unknown []string
	for name := range vars {
		isLink := slices.ContainsFunc(linked, func(service string) bool {
			return strings.HasPrefix(name, service+"_SERVICE_") || name == service+"_PORT" || strings.HasPrefix(name, service+"_PORT_")
		})
		if !isLink {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
