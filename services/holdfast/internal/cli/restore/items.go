package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// itemOptions are the flags of a restore of parts of a backup.
type itemOptions struct {
	names        []string
	files        []string
	namespace    string
	dependencies bool
	children     bool
}

func (o *itemOptions) bindFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.names, "item", nil, "restore only this object of the backup, as `KIND/NAME`, with -n for its namespace, or KIND/NAMESPACE/NAME; may be given several times")
	fs.StringSliceVar(&o.files, "files", nil, "restore only this file or directory, as `CLAIM:PATH`, with -n for its namespace, or NAMESPACE/CLAIM:PATH, into the volume that a Pod has mounted now; may be given several times")
	fs.BoolVar(&o.dependencies, "with-dependencies", false, "with --item, also what the objects refer to, in any number of steps")
	fs.BoolVar(&o.children, "with-children", false, "with --item, also what the objects own, in any number of steps")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "with --item or --files, the namespace of the items or claims; else that of the backup server, as before the name of the command")
}

// annotations returns those of the Restore.
func (o *itemOptions) annotations() (map[string]string, error) {
	var with []string
	if o.dependencies {
		with = append(with, selection.WithDependencies)
	}
	if o.children {
		with = append(with, selection.WithChildren)
	}
	switch {
	case len(o.files) > 0 && len(o.names)+len(with) > 0:
		return nil, errors.New("--files cannot be combined with --item")
	case len(o.files) > 0:
		return o.filesAnnotation()
	case len(o.names) == 0 && len(with) > 0:
		return nil, fmt.Errorf("--with-%s needs --item", with[0])
	case len(o.names) == 0:
		return nil, nil
	}
	items := make([]string, len(o.names))
	for i, name := range o.names {
		item, err := selection.ParseItem(name)
		if err != nil {
			return nil, fmt.Errorf("--item: %w", err)
		}
		if item.Namespace == "" {
			item.Namespace = o.namespace
		}
		items[i] = item.String()
	}
	out := map[string]string{holdfast.AnnotationItems: strings.Join(items, ",")}
	if len(with) > 0 {
		out[holdfast.AnnotationItemsWith] = strings.Join(with, ",")
	}
	return out, nil
}

// filesAnnotation returns the annotation that names files of claims.
func (o *itemOptions) filesAnnotation() (map[string]string, error) {
	files := map[string][]string{}
	for _, text := range o.files {
		claim, name, ok := strings.Cut(text, ":")
		if !ok {
			return nil, fmt.Errorf("--files: %q is neither CLAIM:PATH nor NAMESPACE/CLAIM:PATH", text)
		}
		if !strings.Contains(claim, "/") && o.namespace != "" {
			claim = o.namespace + "/" + claim
		}
		files[claim] = append(files[claim], strings.Trim(path.Clean("/"+name), "/"))
	}
	text, err := json.Marshal(files)
	if err != nil {
		return nil, fmt.Errorf("--files: %w", err)
	}
	out := map[string]string{holdfast.AnnotationFiles: string(text)}
	if _, err := selection.ParseItems(out); err != nil {
		return nil, fmt.Errorf("--files: %w", errors.Unwrap(err))
	}
	return out, nil
}

// completeItems sets the annotations, and the namespace of the server where the flag means that.
func (o *CreateOptions) completeItems() error {
	annotations, err := o.items.annotations()
	if err != nil {
		return err
	}
	for key, value := range annotations {
		if _, set := o.Annotations[key]; set {
			return errors.New("--annotations: " + key + " is set by another flag")
		}
		o.addAnnotation(key, value)
	}
	if len(annotations) == 0 && o.items.namespace != "" {
		o.Global.Namespace = o.items.namespace
	}
	return nil
}

// writeItems describes the parts that the restore is of.
func (d *Description) writeItems(p *job.Page) {
	items, err := selection.ParseItems(d.Restore.Annotations)
	if err != nil || len(items.Named) == 0 {
		return
	}
	if items.Files != nil {
		p.Heading("Files")
		for i, claim := range items.Named {
			p.Field(1, claim.Namespace+"/"+claim.Name, job.FormatNames(items.Files[i], ""))
		}
		return
	}
	names := make([]string, len(items.Named))
	for i, item := range items.Named {
		names[i] = item.String()
	}
	var with []string
	if items.Dependencies {
		with = append(with, selection.WithDependencies)
	}
	if items.Children {
		with = append(with, selection.WithChildren)
	}
	p.Heading("Items")
	p.Field(1, "Named", job.FormatNames(names, ""))
	p.Field(1, "With", job.FormatNames(with, ""))
	if progress := d.Restore.Status.Progress; progress != nil {
		p.Field(1, "Brought along", max(0, progress.TotalItems-len(names)))
	}
}
