package remove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// vendors are the delete item actions of the binaries that this test's binary is linked as, in the
// order of registration.
var vendors = map[string][]string{"first": {"b.io/a", "a.io/x"}, "second": {"a.io/b"}}

// The configuration of a binary: a directory with a file for every misbehaviour, named
// "<action>~<object>" without slashes.
const (
	envOrders = "VENDOR_ORDERS"
	diaryFile = "diary"
)

func orderPath(dir, action, object string) string {
	return filepath.Join(dir, strings.ReplaceAll(action, "/", "_")+"~"+object)
}

// beAVendor is the test binary as a plugin made with the SDK.
func beAVendor() {
	registry := &plugin.Registry{}
	for _, name := range vendors[filepath.Base(os.Args[0])] {
		registry.DeleteItemAction(name, []string{"*"}, func(plugin.Env) (plugin.DeleteItemAction, error) { return vendor(name), nil })
	}
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// vendor is an action that logs its calls and follows its orders.
type vendor string

func (vendor) AppliesTo(context.Context) (plugin.Selector, error) { return plugin.Selector{}, nil }

func (v vendor) Execute(_ context.Context, in *plugin.BackupInput) error {
	dir, object := os.Getenv(envOrders), in.Item.GetName()
	for name, text := range map[string]string{diaryFile: fmt.Sprintf("%s %s %s\n", v, in.Backup.Name(), object), "pid-" + strconv.Itoa(os.Getpid()): ""} {
		if err := appendText(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	switch order, _ := os.ReadFile(orderPath(dir, string(v), object)); string(order) {
	case "error":
		return errors.New("the array is rebooting")
	case "hang":
		select {} // even after the end of the call
	}
	return nil
}

func appendText(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
