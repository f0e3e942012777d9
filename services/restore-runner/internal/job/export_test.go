package job

import "github.com/holdfast-io/holdfast/pkg/offer"

// Offered returns the restores that wait to be looked at here.
func (c *Controller) Offered() <-chan offer.Job { return c.desk.Offered() }
