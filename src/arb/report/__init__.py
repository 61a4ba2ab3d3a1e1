"""From run folders and archives to statistics, tables, plots and one HTML page; reads files and trains nothing."""
