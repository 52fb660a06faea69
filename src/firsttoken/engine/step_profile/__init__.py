"""What the steps of a running engine spend their time on: a trace of some of them, and one page that sums it up."""
