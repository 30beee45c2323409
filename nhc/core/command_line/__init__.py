"""What commands share: options, printed results, errors."""
