package job

// Offered returns the restores that wait to be looked at here.
func (c *Controller) Offered() <-chan offer { return c.offered }
