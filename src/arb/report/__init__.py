"""From run folders to statistics, tables, figures and one HTML page; reads files and knows nothing of training."""
