package up

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// bindServices gives fs the flags that the services' own binaries have beyond those that all share.
// One that several services have, such as --claim-timeout, sets it in all of them.
func bindServices(fs *pflag.FlagSet, kinds []serviceKind) {
	fans := map[string]*sharedFlag{}
	for _, k := range kinds {
		own := pflag.NewFlagSet(k.name, pflag.ContinueOnError)
		k.bind(own)
		own.VisitAll(func(f *pflag.Flag) {
			shared := fans[f.Name]
			if shared == nil {
				shared = &sharedFlag{values: []pflag.Value{f.Value}, usage: f.Usage}
				fans[f.Name] = shared
				fs.VarPF(shared, f.Name, f.Shorthand, "").NoOptDefVal = f.NoOptDefVal
			} else {
				shared.values = append(shared.values, f.Value)
			}
			shared.services = append(shared.services, k.name)
			fs.Lookup(f.Name).Usage = fmt.Sprintf("%s (%s)", shared.usage, strings.Join(shared.services, ", "))
		})
	}
}

// sharedFlag is a flag that sets the flags of that name of several services.
type sharedFlag struct {
	values   []pflag.Value
	services []string
	usage    string // of the first of them
}

// Set sets all of them.
func (f *sharedFlag) Set(text string) error {
	var errs []error
	for _, v := range f.values {
		errs = append(errs, v.Set(text))
	}
	return errors.Join(errs...)
}

// String is the value in the service that has the flag first.
func (f *sharedFlag) String() string {
	if len(f.values) == 0 {
		return "" // pflag calls it on a zero value, to find out which defaults to print
	}
	if text := f.values[0].String(); text != "[]" {
		return text
	}
	return "" // an empty list, which is not worth a mention either
}

// Type is the type of the value, for the help.
func (f *sharedFlag) Type() string { return f.values[0].Type() }
