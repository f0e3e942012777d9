package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// Creation holds the flags that every create command has.
type Creation struct {
	*Session
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Wait        bool
	Output      command.Output

	noun string
}

// Creator is a create command of one kind.
type Creator interface {
	// BindFlags adds the flags.
	BindFlags(fs *pflag.FlagSet)
	// Complete fills in what follows from the arguments and flags.
	Complete(args []string) error
	// Validate refuses what the server would refuse.
	Validate(ctx context.Context) error
	// Run creates the object.
	Run(ctx context.Context) error
}

// NewCreation returns the flags of the command that creates a backup or restore, which noun names.
func NewCreation(g *command.Global, noun string) Creation {
	return Creation{Session: &Session{Global: g}, noun: noun}
}

// Creating makes a command, whose texts are set, one that creates.
func Creating(cmd *cobra.Command, o Creator) *cobra.Command {
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.Complete(args); err != nil {
			return err
		}
		if err := o.Validate(cmd.Context()); err != nil {
			return err
		}
		return o.Run(cmd.Context())
	}
	o.BindFlags(cmd.Flags())
	return cmd
}

// BindMetaFlags adds the flags of labels and annotations.
func (c *Creation) BindMetaFlags(fs *pflag.FlagSet) {
	command.MapVar(fs, &c.Labels, "labels", "=", "labels of the "+c.noun+" itself")
	command.MapVar(fs, &c.Annotations, "annotations", "=", "annotations of the "+c.noun+" itself")
}

// BindFlags adds the flags.
func (c *Creation) BindFlags(fs *pflag.FlagSet) {
	c.BindMetaFlags(fs)
	fs.BoolVarP(&c.Wait, "wait", "w", false, "wait for the end; exit code 2 means partially failed")
	c.Output.BindObjectFlag(fs)
}

// Connect connects to the cluster.
func (c *Creation) Connect() (err error) {
	c.Session, err = Connect(c.Global)
	return err
}

// Meta is the metadata that the flags describe.
func (c *Creation) Meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Labels: c.Labels, Annotations: c.Annotations}
}

// CheckName returns what is wrong with the name; an empty one may still be chosen.
func (c *Creation) CheckName() error {
	if problems := validation.IsDNS1123Subdomain(c.Name); c.Name != "" && len(problems) > 0 {
		return fmt.Errorf("name %q: %s", c.Name, problems[0])
	}
	return nil
}

// CheckWait refuses to wait for what is only printed.
func (c *Creation) CheckWait() error {
	if c.Wait && !c.Output.IsText() {
		return fmt.Errorf("--wait cannot be combined with -o, which prints the %s without creating it", c.noun)
	}
	return nil
}

// CheckSelectors refuses to select in two ways at once.
func CheckSelectors(one *metav1.LabelSelector, several []*metav1.LabelSelector) error {
	if one != nil && len(several) > 0 {
		return errors.New("--selector and --or-selector cannot be combined")
	}
	return nil
}

// Create creates an object, or prints it with -o, and waits for its end if asked. Otherwise it waits
// shortly whether the object is refused.
func (k *Kind[T]) Create(ctx context.Context, c *Creation, obj T) error {
	if !c.Output.IsText() {
		return c.Output.Print(c.Global.Out, obj)
	}
	if err := c.Client.Create(ctx, obj); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("%w; choose another name or delete it first", err)
		}
		return fmt.Errorf("create %s %q: %w", k.kindNoun(), obj.GetName(), err)
	}
	c.Printf("%s %q was requested.\n", k.Name, obj.GetName())
	if !c.Wait {
		if err := k.watchValidation(ctx, c.Session, obj); err != nil {
			return err
		}
		c.Printf("`holdfast %s describe %s` shows how far it is.\n", k.kindNoun(), obj.GetName())
		return nil
	}
	return k.awaitTerminal(ctx, c.Session, obj)
}
