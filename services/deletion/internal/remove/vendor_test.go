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
	envOrders   = "VENDOR_ORDERS"
	atStart     = "start"
	atAppliesTo = "appliesto"
	diaryFile   = "diary"
)

// rawStderr is what the host reads, whatever os.Stderr is by then. It stays: a File that is
// collected closes its descriptor.
var rawStderr = os.NewFile(2, "stderr")

// orderFor returns what the action has to do for the object; empty is its work.
func orderFor(action, object string) string {
	text, err := os.ReadFile(orderPath(os.Getenv(envOrders), action, object))
	if err != nil {
		return ""
	}
	return string(text)
}

func orderPath(dir, action, object string) string {
	return filepath.Join(dir, strings.ReplaceAll(action, "/", "_")+"~"+object)
}

// beAVendor is the test binary as a plugin made with the SDK.
func beAVendor() {
	binary := filepath.Base(os.Args[0])
	if orderFor(binary, atStart) != "" {
		fmt.Fprintln(os.Stderr, "no licence")
		os.Exit(3)
	}
	registry := &plugin.Registry{}
	for _, name := range vendors[binary] {
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

func (v vendor) AppliesTo(context.Context) (plugin.Selector, error) {
	switch orderFor(string(v), atAppliesTo) {
	case "error":
		return plugin.Selector{}, errors.New("no answer for you")
	case "unknown":
		return plugin.Selector{IncludedResources: []string{"spaceships.example.com"}}, nil
	}
	return plugin.Selector{}, nil
}

func (v vendor) Execute(_ context.Context, in *plugin.BackupInput) error {
	if in.Backup.Name() == "" || in.Backup.Namespace() != "velero" {
		return errors.New("no backup")
	}
	v.noteLine(in.Backup.Name() + " " + in.Item.GetName())
	switch orderFor(string(v), in.Item.GetName()) {
	case "error":
		return errors.New("the array is rebooting")
	case "panic":
		panic("index out of range")
	case "exit":
		os.Exit(4)
	case "flood":
		for i := range 5000 {
			fmt.Fprintf(rawStderr, "%d%s\n", i, strings.Repeat("x", 1<<10))
		}
	case "hang":
		// until the test writes to the pipe, even after the end of the call
		_, _ = os.ReadFile(orderPath(os.Getenv(envOrders), string(v), in.Item.GetName()+".pipe"))
	}
	return nil
}

// noteLine adds a line to the diary, and this process to the list.
func (v vendor) noteLine(line string) {
	dir := os.Getenv(envOrders)
	for name, text := range map[string]string{diaryFile: string(v) + " " + line + "\n", "pid-" + strconv.Itoa(os.Getpid()): ""} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		if _, err := f.WriteString(text); err != nil {
			panic(err)
		}
		if err := f.Close(); err != nil {
			panic(err)
		}
	}
}
