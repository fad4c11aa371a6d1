"""What goes wrong on real nodes, on one installation by the chart."""
